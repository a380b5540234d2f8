// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/bench_run.h"
#include "report/units.h"

namespace logitless::report {

/// What the page says of a contender at a point: its extra peak memory, its time, dense's memory ÷ its own, or its time
/// ÷ dense's. NaN where the contender failed, or where dense, which it is divided by, did.
double value_of(const Point& point, const Measurement& measurement, Unit unit);

/// The same in words; "–" where there is nothing to say.
std::string text_of(const Point& point, const Measurement& measurement, Unit unit);

/// Half the distance between the quartiles; that of a quotient is the contender's own. 0 for memory.
double spread_of(const Point& point, const Measurement& measurement, Unit unit);

/// "± 1.2 %"
std::string spread_text(double value, double spread);

}  // namespace logitless::report
