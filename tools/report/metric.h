// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/bench_run.h"
#include "report/units.h"

namespace logitless::report {

/// A figure that drawings show, of one contender at one point. NaN where the contender failed, or where the dense path
/// that it is divided by did.
struct Metric {
  const char* title;
  Unit unit;
  double (*value)(const Point& point, const Measurement& measurement);
  double (*spread)(const Point& point, const Measurement& measurement);  ///< 0: none
};

extern const Metric kMemory;       ///< extra peak
extern const Metric kTime;         ///< of one call
extern const Metric kMemoryRatio;  ///< dense ÷ contender
extern const Metric kTimeRatio;    ///< contender ÷ dense; the spread is the contender's own

/// "one_pass: 7.64 s ± 1.2 %", or its error.
std::string say(const Point& point, const Measurement& measurement, const Metric& metric);

/// "± 1.2 %"
std::string spread_text(double value, double spread);

}  // namespace logitless::report
