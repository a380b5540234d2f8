// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Functions that read the per-token and per-sequence inputs of losses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/checks.h"
#include "core/store.h"
#include "core/tensors.h"
#include "core/views.h"
#include "problem/token_problem.h"

namespace logitless::loss {

using problem::kNoTarget;

/// Returns the sequence of each of N rows, from the B + 1 offsets.
inline core::Array<int64_t> sequence_of_rows(std::span<const int64_t> offsets) {
  core::Array<int64_t> sequence(static_cast<size_t>(offsets.back()));
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int64_t row = offsets[s]; row < offsets[s + 1]; ++row) {
      sequence[static_cast<size_t>(row)] = static_cast<int64_t>(s);
    }
  }
  return sequence;
}

/// Returns whether a vector has one entry per token, not per sequence. `size` is its number of entries,
/// `sequence` the sequence of each row. Throws InvalidInput for a wrong size, or if the size fits both and
/// they would be read differently. Messages call the vector `name`.
inline bool is_per_token(std::string_view name, EntriesPer per, int64_t size, std::span<const int64_t> sequence,
                         int64_t sequences) {
  const auto tokens = static_cast<int64_t>(sequence.size());
  if (per == EntriesPer::kToken && size != tokens) {
    core::fail(name, " ", core::HasEntries(size), " but must have one per token (", tokens, "), as ", name,
               "_per says");
  }
  if (per == EntriesPer::kSequence && size != sequences) {
    core::fail(name, " ", core::HasEntries(size), " but must have one per sequence (", sequences, "), as ", name,
               "_per says");
  }
  if (per != EntriesPer::kBySize) return per == EntriesPer::kToken;
  if (size != tokens && size != sequences) {
    core::fail(name, " ", core::HasEntries(size), " but must have one per sequence (", sequences,
               ") or one per token (", tokens, ")");
  }
  if (tokens != sequences) return size == tokens;
  for (size_t row = 0; row < sequence.size(); ++row) {
    if (sequence[row] != static_cast<int64_t>(row)) {
      core::fail(name, " has ", size, " entries, and there are as many sequences as tokens: set ", name,
                 "_per to say which of the two it has one for");
    }
  }
  return false;
}

/// Logarithms of ratios and weights are clamped to ± this, whatever the options: then the product of two such
/// weights, an advantage and a sum over tokens is a finite float64.
inline constexpr double kMostLogRatio = 300;

/// Returns weight · value, with 0 · ∞ = 0.
inline double weighted(double weight, double value) { return weight == 0 ? 0 : weight * value; }

/// Returns 1 / count, or 0 for an empty mean.
inline double reciprocal_or_zero(double count) { return count > 0 ? 1 / count : 0; }

/// Returns exp of x clamped to ±most; NaN for NaN.
inline double bounded_exp(double x, double most) { return std::exp(std::clamp(x, -most, most)); }

/// Returns log σ(x), exact for large |x|.
inline double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
inline double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

/// Returns values[i]. Throws InvalidInput with its name unless it is finite (or NaN, if `nan_allowed`).
inline double finite_entry(std::string_view name, const ConstVector& values, int64_t i, bool nan_allowed = false) {
  const double value = core::read(values, i);
  if (std::isfinite(value) || (nan_allowed && std::isnan(value))) return value;
  core::fail(name, "[", i, "] = ", value, " must be finite");
}

}  // namespace logitless::loss
