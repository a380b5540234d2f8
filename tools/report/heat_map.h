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

/// Colours follow the logarithm of the value.
struct HeatScale {
  Unit unit = Unit::kNone;
  double low = 1, high = 1;  ///< the values at the two ends, above 0
  bool diverging = false;    ///< the middle is 1 and low = 1 / high
};

/// One value for each pair of two keys' values.
struct HeatMap {
  std::string title;
  std::string subtitle;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<HeatCell> cells;  ///< row by row
  HeatScale scale;
};

/// The scale that all of these maps fit. A quotient of times whose values lie on both sides of 1 gets a diverging one.
/// Values that differ by a few percent keep colours that differ a little.
HeatScale scale_of(const std::vector<HeatMap>& maps, Unit unit);

Panel draw(const HeatMap& map);

}  // namespace logitless::report
