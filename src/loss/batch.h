// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These functions read what a trainer hands over beside the hidden states: one number a token or one a
// sequence.
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

/// Tells whether the vector that messages call `name`, of `size` entries, has one a token and not one a
/// sequence. `sequence` holds that of each row. Throws InvalidInput where the size is wrong, or fits both and
/// they would be read differently.
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

/// Logarithms of ratios and weights are held within ± this, whatever the options say: the product of two such
/// weights, an advantage and a sum over tokens is a finite float64.
inline constexpr double kMostLogRatio = 300;

/// Returns weight · value, where 0 · ∞ is 0: what has no weight does not take part.
inline double weighted(double weight, double value) { return weight == 0 ? 0 : weight * value; }

/// Returns 1 / count, or 0 for a mean over nothing.
inline double reciprocal_or_zero(double count) { return count > 0 ? 1 / count : 0; }

/// Returns exp of x held within ±most; NaN for NaN.
inline double bounded_exp(double x, double most) { return std::exp(std::clamp(x, -most, most)); }

/// Returns log σ(x), exact for large |x|.
inline double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
inline double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

/// Returns values[i]. Throws InvalidInput, which names it, unless it is finite (or NaN, where that is
/// allowed).
inline double finite_entry(std::string_view name, const ConstVector& values, int64_t i, bool nan_allowed = false) {
  const double value = core::read(values, i);
  if (std::isfinite(value) || (nan_allowed && std::isnan(value))) return value;
  core::fail(name, "[", i, "] = ", value, " must be finite");
}

}  // namespace logitless::loss
