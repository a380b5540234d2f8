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
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double spread(const std::vector<double>& values) { return (quantile(values, 0.75) - quantile(values, 0.25)) / 2; }

}  // namespace logitless::timing
