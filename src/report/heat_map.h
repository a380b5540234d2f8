// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/panel.h"
#include "report/units.h"

namespace logitless::report {

struct HeatCell {
  std::optional<double> value;  ///< empty: nothing to colour
  std::string text;
  std::string note;
};

/// One value for each pair of two keys' values. Colours follow the logarithm of the value.
struct HeatMap {
  std::string title;
  std::string subtitle;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<HeatCell> cells;  ///< row by row
  double low = 1, high = 1;     ///< the values at the scale's two ends, above 0
  std::string low_text, high_text;
  bool diverging = false;  ///< the scale's middle is 1 and low = 1 / high
};

Panel draw(const HeatMap& map);

}  // namespace logitless::report
