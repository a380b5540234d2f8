// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "timing/statistics.h"

#include <algorithm>
#include <utility>

namespace logitless::timing {

double quantile(std::vector<double> values, double rank) {
  std::sort(values.begin(), values.end());
  const double place = rank * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double share = place - static_cast<double>(below);
  // Interpolated without a difference, because ∞ - ∞ is NaN.
  return share == 0 ? values[below] : (1 - share) * values[below] + share * values[above];
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double spread(const std::vector<double>& values) { return (quantile(values, 0.75) - quantile(values, 0.25)) / 2; }

}  // namespace logitless::timing
