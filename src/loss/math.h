// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Functions that the formulas of several losses share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "logitless/names.h"

namespace logitless::loss {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// The logarithm of zero mass.
inline constexpr double kNothing = -kInfinity;

/// Logarithms of ratios and weights are clamped to ± this, whatever the options: then the product of two such
/// weights, an advantage and a sum over tokens is a finite float64.
inline constexpr double kMostLogRatio = 300;

/// A function's value and its derivative.
struct WithSlope {
  double value = 0;
  double slope = 0;
};

/// Returns weight · value, with 0 · ∞ = 0.
inline double weighted(double weight, double value) { return weight == 0 ? 0 : weight * value; }

/// Returns 1 / count, or 0 for an empty mean.
inline double reciprocal_or_zero(double count) { return count > 0 ? 1 / count : 0; }

/// Returns exp of x clamped to ±most, with slope 0 outside. Both are NaN for NaN.
inline WithSlope bounded_exp(double x, double most) {
  const double value = std::exp(std::clamp(x, -most, most));
  return {value, x < -most || x > most ? 0 : value};
}

/// Returns log σ(x), exact for large |x|.
inline double log_sigmoid(double x) { return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x)); }
inline double sigmoid(double x) { return std::exp(log_sigmoid(x)); }

/// Returns whether a table has one row per enumerator of its loss_type, in the order of the enumeration.
template <class Row, size_t kRows>
constexpr bool has_row_per_loss(const Row (&rows)[kRows]) {
  for (size_t i = 0; i < kRows; ++i) {
    if (static_cast<size_t>(rows[i].loss_type) != i) return false;
  }
  return kRows == kNamesOf<decltype(Row::loss_type)>.size();
}

}  // namespace logitless::loss
