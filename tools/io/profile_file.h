// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Kernel settings that `logitless tune` found, in a YAML file: a list with an entry a machine and shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/matrices.h"
#include "io/error.h"
#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/plan.h"
#include "logitless/profile.h"

namespace logitless::io {

/// What decides about speed on one machine and not on another.
struct ProfileMachine {
  std::string cpu;
  int threads = 0;
  std::string simd_target;
  std::string gemm_backend;
  std::string blas_core;

  bool operator==(const ProfileMachine&) const = default;
};
/// That of a context.
ProfileMachine machine_of(const Context& context);

/// Sizes from low to high, both included.
struct SizeRange {
  int64_t low = 0;
  int64_t high = 0;

  bool operator==(const SizeRange&) const = default;
};

struct ProfileEntry {
  ProfileMachine machine;
  DType dtype = DType::kFloat32;
  HeadLayout layout = HeadLayout::kVocabHidden;
  SizeRange tokens;
  SizeRange hidden_size;  ///< 0 to 0: losses of finished logits
  SizeRange vocab_size;
  size_t workspace_bytes = 0;  ///< the budget that it was tuned for
  PlanKind plan = PlanKind::kAuto;
  int64_t row_tile = 0;    ///< 0: auto; row_block of finished logits
  int64_t vocab_tile = 0;  ///< 0: auto
  std::string task;        ///< that was measured; empty: not told
  double default_s = 0;    ///< a call's time without the entry, and with it
  double tuned_s = 0;

  /// Whether `other` is about the same machine, shape and workspace.
  bool replaces(const ProfileEntry& other) const;
};

/// The entry of a shape that was measured: it serves sizes from half to twice of it.
ProfileEntry entry_for(const ProfileMachine& machine, const ProfileShape& shape, size_t workspace_bytes);

/// `path`, or where that is empty what the environment variable LOGITLESS_PROFILE names; empty where neither
/// does.
std::string profile_path(const std::string& path);

/// Throws Error that names file, line and key, after `source`: the option that asked for the file.
std::vector<ProfileEntry> read_profile(const std::string& path, const std::string& source = "");
std::string profile_text(const std::vector<ProfileEntry>& entries);

struct ProfileChoice {
  const ProfileEntry* entry = nullptr;
  std::string why_none;  ///< where there is no entry
};

/// Of the entries of this machine, dtype and layout whose ranges hold the shape and whose workspace is within
/// `workspace_bytes`: the nearest one, by the sum of |log2(size / middle of the range)| over the three sizes,
/// the middle being geometric. Of equally near ones it is the one with the largest workspace, then the first.
ProfileChoice choose_entry(const std::vector<ProfileEntry>& entries, const ProfileMachine& machine,
                           const ProfileShape& shape, size_t workspace_bytes);

struct ProfileUse {
  ContextOptions options;
  std::string why_not;  ///< empty where an entry was used
};

/// What load_profile() does with entries.
ProfileUse use_profile(const std::vector<ProfileEntry>& entries, const ProfileShape& shape, ContextOptions base);

}  // namespace logitless::io
