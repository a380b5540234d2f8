// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The running statistics of one row of logits over some of its columns, and how two of them are merged.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace logitless::kernels {

/// All sums are relative to the largest capped logit, with u_v = (c_v − max) / temperature, so that a common
/// offset loses no digits. `rest` excludes one largest exponential, so that a probability near 1 loses no
/// digits either.
struct RowStats {
  // The largest c; NaN once a NaN was seen, -inf while no column has mass.
  double max = -std::numeric_limits<double>::infinity();
  double rest = 0;        // Σ exp(u) − 1
  double weighted = 0;    // Σ exp(u) u
  double cross = 0;       // Σ q u
  double cross_mass = 0;  // Σ q
  int64_t argmax = -1;    // first column with the largest c; -1: none

  double log_sum() const { return std::log1p(rest); }
  /// Returns whether the statistics are numbers: the row has no NaN, no +inf and at least one logit above
  /// -inf.
  bool defined() const { return std::isfinite(max); }
};

/// Returns Σ q (u + shift) from Σ q u. If no entry has a weight q, shift = -inf has no effect.
inline double shifted_cross(const RowStats& s, double shift) {
  return s.cross_mass == 0 ? s.cross : s.cross + shift * s.cross_mass;
}

/// Merges two parts of a row; the columns of `earlier` come before all columns of `later`.
/// inverse_temperature must be > 0.
inline RowStats merge(const RowStats& earlier, const RowStats& later, double inverse_temperature) {
  if (std::isnan(earlier.max) || std::isnan(later.max)) {
    RowStats nan;
    nan.max = std::numeric_limits<double>::quiet_NaN();
    return nan;
  }
  const bool later_wins = later.max > earlier.max;
  const RowStats& high = later_wins ? later : earlier;
  const RowStats& low = later_wins ? earlier : later;
  RowStats out = high;
  out.cross_mass = earlier.cross_mass + later.cross_mass;
  if (high.max == -std::numeric_limits<double>::infinity()) {
    // Neither part has mass, so neither is shifted.
    out.cross = earlier.cross + later.cross;
    return out;
  }
  const double shift = (low.max - high.max) * inverse_temperature;
  out.cross += shifted_cross(low, shift);
  if (low.max == -std::numeric_limits<double>::infinity()) return out;
  const double scale = std::exp(shift);
  out.rest += scale * (1 + low.rest);
  if (scale > 0) out.weighted += scale * (low.weighted + shift * (1 + low.rest));
  return out;
}

}  // namespace logitless::kernels
