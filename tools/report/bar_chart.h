// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/panel.h"
#include "report/units.h"

namespace logitless::report {

struct Bar {
  std::string contender;
  double value = 0;
  double spread = 0;
  std::string label;  ///< beside the bar
  bool failed = false;
};

/// One value a contender: bars from 0 on a linear scale, because a bar's length is what it says.
struct BarChart {
  std::string title;
  std::string subtitle;
  std::vector<Bar> bars;
};

Panel draw(const BarChart& chart);

}  // namespace logitless::report
