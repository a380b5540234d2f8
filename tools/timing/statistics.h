// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace logitless::timing {

/// Returns the value below which the share `rank` (0 to 1) of a non-empty list without NaN lies, interpolated
/// linearly.
double quantile(std::vector<double> values, double rank);

/// The mean of the middle two if their number is even.
double median(std::vector<double> values);

/// Half the distance between the quartiles; 0 for a single value.
double spread(const std::vector<double>& values);

}  // namespace logitless::timing
