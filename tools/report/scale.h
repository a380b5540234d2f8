// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// From values to places on paper: linear and logarithmic scales, and ticks at numbers that people like.
#pragma once

#include <vector>

#include "report/units.h"

namespace logitless::report {

/// Sizes that are drawn lie between these or are 0, so that quotients, logarithms and ticks of any two are finite.
inline constexpr double kLeastSize = 1e-12, kMostSize = 1e24;

/// Maps [low, high] to [from, to]; values outside land on the nearer end. A domain of one value maps to the middle.
class Scale {
 public:
  /// `logarithmic` wants 0 < low.
  Scale(double low, double high, double from, double to, bool logarithmic);
  double operator()(double value) const;

 private:
  double low_, high_, from_, to_;
  bool logarithmic_;
};

/// Multiples of 1, 2 or 5 times a power of ten (bytes: of a power of two), from 0 to the first one not below `high`; at
/// most `most` + 1 of them. high = 0 counts as one unit.
std::vector<double> linear_ticks(double high, int most, Unit unit);

/// From the last tick not above `low` to the first not below `high`, at most `most`: 1, 2, 5 within each power of ten
/// where they fit, else whole powers; for bytes powers of two, equally far apart. kLeastSize <= low < high.
std::vector<double> log_ticks(double low, double high, int most, Unit unit);

}  // namespace logitless::report
