// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "report/panel.h"
#include "report/units.h"

namespace logitless::report {

struct LineMark {
  double x = 0;
  double y = 0;
  double spread = 0;  ///< a bar of y ± spread; 0: none
  std::string note;
  bool failed = false;  ///< no value: the line breaks and a cross stands at the top
};

struct LineSeries {
  std::string contender;
  std::vector<LineMark> marks;  ///< in the order of x
};

struct LinePosition {
  double x = 0;
  std::string label;
};

/// The values that an axis must hold: the smallest above 0, and the largest with its spread. Charts that are to be held
/// against each other share one.
struct LineRange {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;

  void include(const LineMark& mark);
};

/// Values of several contenders against one key, on a logarithmic axis where a linear one would flatten them.
struct LineChart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::vector<LinePosition> positions;  ///< the values of x that were swept, ascending; they get the ticks
  bool ordinal = false;                 ///< x counts places, not values
  Unit unit = Unit::kNone;              ///< of y
  std::vector<LineSeries> series;
  LineRange range;
};

Panel draw(const LineChart& chart);

}  // namespace logitless::report
