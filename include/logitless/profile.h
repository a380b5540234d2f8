// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// A profile holds kernel settings that `logitless tune` measured for this machine. It has a library of its
/// own, logitless::profile, which reads files and needs yaml-cpp:
///
///     find_package(logitless REQUIRED COMPONENTS profile)
///     target_link_libraries(trainer PRIVATE logitless::logitless logitless::profile)
#pragma once

#include <cstdint>
#include <string>

#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/error.h"
#include "logitless/export.h"

namespace logitless {

/// A profile is looked up by this.
struct ProfileShape {
  int64_t tokens = 0;  ///< N of a call
  /// H, or 0 for losses of finished logits (logits.h), where the next member does not count.
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;            ///< V
  DType dtype = DType::kFloat32;     ///< of hidden states and head, or of the logits
  bool stored_hidden_vocab = false;  ///< the head is stored as [H, V]
};

/// Returns `base` with plan, rows (row_tile, or row_block for finished logits) and vocab_tile of the entry
/// that fits, as far as `base` leaves them open (kAuto and 0), or `base` itself where no entry
/// fits. An entry fits where it was measured on this machine (CPU, threads, instruction set, BLAS
/// core), for this dtype and way of storing the head, for sizes of at least half and at most twice these
/// ones, and within a budget that base.workspace_bytes allows; of several the one with the nearest shape is
/// used. `note` (if not null) says why none is used, and is empty where one is. An empty `path` stands for
/// the file that the environment variable LOGITLESS_PROFILE names, and for no profile where that is not set.
/// Other tiles round differently in the last places: results with and without a profile agree within
/// rounding, not to the bit.
///
/// The function throws InvalidInput, with file, line and key, where the file cannot be read or is no profile.
///
///     // logitless tune model.yaml -o profile.yaml
///     const logitless::Context context(logitless::load_profile("profile.yaml", {2048, 1536, 151936}));
LOGITLESS_API ContextOptions load_profile(const std::string& path, const ProfileShape& shape, ContextOptions base = {},
                                          std::string* note = nullptr);

}  // namespace logitless
