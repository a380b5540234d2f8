// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Shared by losses on whole sequences: which token predicts what, and how many tokens each sequence has.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/preference.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::loss {

/// The rows of S sequences and the token ids they predict.
struct SequenceTokens {
  core::Array<int64_t> targets;   // [N], kNoTarget if a row takes no part
  core::Array<int64_t> sequence;  // [N]
  core::Array<int64_t> counts;    // [S]: rows that take part

  int64_t sequences() const { return static_cast<int64_t>(counts.size()); }
  int64_t tokens() const { return static_cast<int64_t>(targets.size()); }
  double count(int64_t s) const { return static_cast<double>(counts[static_cast<size_t>(s)]); }
  /// Removes the rows of sequence s.
  void drop(int64_t s);
};

/// Returns the sequences; `ids` are [N], kNoTarget if a row takes no part (problem::resolve_targets).
SequenceTokens read_sequences(std::span<const int64_t> offsets, core::Array<int64_t> ids);

}  // namespace logitless::loss
