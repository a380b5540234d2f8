// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The sequences of a batch, and the values that a caller gives per token or per sequence.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/checks.h"
#include "core/store.h"
#include "core/tensors.h"
#include "problem/token_problem.h"

namespace logitless::loss {

using problem::kNoTarget;

/// The rows of S sequences and the token ids they predict.
struct SequenceTokens {
  core::Array<int64_t> targets;   // [N], kNoTarget if a row is ignored
  core::Array<int64_t> sequence;  // [N]
  core::Array<int64_t> counts;    // [S]: active rows

  int64_t sequences() const { return static_cast<int64_t>(counts.size()); }
  int64_t tokens() const { return static_cast<int64_t>(targets.size()); }
  bool is_active(size_t row) const { return targets[row] != kNoTarget; }
  double count(std::integral auto s) const { return static_cast<double>(counts[static_cast<size_t>(s)]); }
  /// Returns the number of active rows.
  double total() const;
  /// Returns the sum of `values`, [N], over the active rows.
  double sum(const std::vector<double>& values) const;
};

/// Returns the sequences; `ids` are [N], kNoTarget if a row is ignored (problem::resolve_targets).
SequenceTokens read_sequences(std::span<const int64_t> offsets, core::Array<int64_t> ids);

/// Returns whether a vector of `size` entries has one per token, not per sequence. Throws InvalidInput for a
/// wrong size, or if the size fits both and they would be read differently. Messages call the vector `name`.
bool is_per_token(std::string_view name, EntriesPer per, int64_t size, const SequenceTokens& tokens);

/// Returns values[i]. Throws InvalidInput with its name unless it is finite (or NaN, if `nan_allowed`).
double finite_entry(std::string_view name, const ConstVector& values, int64_t i, bool nan_allowed = false);

/// Returns the entries of a per-token vector, [N], with 0 for ignored rows, which are not read;
/// empty if it is not given. Throws InvalidInput for a wrong size or an entry that is not finite (or NaN, if
/// `nan_allowed`).
core::Array<double> token_values(std::string_view name, const ConstTensor& given, const SequenceTokens& tokens,
                                 std::string_view rows_name, bool nan_allowed = false);

/// Returns the entries of a per-sequence vector, [S], with 0 for sequences without active tokens,
/// which are not read. Throws InvalidInput for a wrong size or an entry that is not finite; `reader` names
/// the option that needs the vector.
core::Array<double> sequence_values(std::string_view name, const ConstTensor& given, const SequenceTokens& tokens,
                                    std::string_view reader);

}  // namespace logitless::loss
