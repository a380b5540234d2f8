// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "report/markup.h"
#include "report/scale.h"
#include "report/style.h"

namespace logitless::report {
namespace {

constexpr double kSubtitleHeight = 16, kTop = 44, kCellHeight = 30, kGap = 2;
constexpr double kLeastSpan = 1.1;  // Less than ten percent between the ends would paint noise.
constexpr double kSwatch = 22, kSwatchHeight = 10;

double widest(const std::vector<std::string>& texts) {
  double width = 0;
  for (const std::string& text : texts) width = std::max(width, text_width(text, 11));
  return width;
}

double widest_cell(const HeatMap& map) {
  double width = widest(map.columns);
  for (const HeatCell& cell : map.cells) width = std::max(width, text_width(cell.text, 11));
  return width + 8;
}

void draw_cell(Markup& svg, const HeatMap& map, const HeatCell& cell, double x, double y, double width) {
  const Scale step(map.scale.low, map.scale.high, 0, kHeatSteps, true);
  const double w = width - kGap, h = kCellHeight - kGap;
  if (cell.value) {
    const int at = std::clamp(static_cast<int>(step(*cell.value)), 0, kHeatSteps - 1);
    svg.open("g", {{"class", heat_class(map.scale.diverging, at)}}).element("title", cell.note);
    svg.empty("rect", {{"x", x}, {"y", y}, {"width", w}, {"height", h}, {"rx", 2.0}});
  } else {
    svg.open("g").element("title", cell.note);
    svg.empty("rect", {{"class", "absent"},
                       {"x", x + .5},
                       {"y", y + .5},
                       {"width", w - 1},
                       {"height", h - 1},
                       {"rx", 2.0},
                       {"stroke-dasharray", "3 3"}});
  }
  svg.element("text", {{"class", "small middle"}, {"x", x + w / 2}, {"y", y + h / 2 + 4}}, cell.text);
  svg.close().line_break();
}

void draw_scale(Markup& svg, const HeatMap& map, double x, double y) {
  const std::string low_text = human(map.scale.low, map.scale.unit), high_text = human(map.scale.high, map.scale.unit);
  svg.element("text", {{"class", "small"}, {"x", x}, {"y", y + 9}}, low_text);
  x += text_width(low_text, 11) + 6;
  for (int step = 0; step < kHeatSteps; ++step, x += kSwatch) {
    svg.open("g", {{"class", heat_class(map.scale.diverging, step)}});
    svg.empty("rect", {{"x", x}, {"y", y}, {"width", kSwatch}, {"height", kSwatchHeight}}).close();
  }
  svg.element("text", {{"class", "small"}, {"x", x + 6}, {"y", y + 9}}, high_text);
  if (map.scale.diverging) {
    svg.element("text", {{"class", "small middle"}, {"x", x - kSwatch * kHeatSteps / 2}, {"y", y + 23}}, "1×");
  }
}

// The smallest and the largest value that have a logarithm.
std::pair<double, double> range_of(const std::vector<HeatMap>& maps) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const HeatMap& map : maps) {
    for (const HeatCell& cell : map.cells) {
      if (!cell.value || !(*cell.value > 0) || std::isinf(*cell.value)) continue;
      low = std::min(low, *cell.value);
      high = std::max(high, *cell.value);
    }
  }
  return high > 0 ? std::pair(low, high) : std::pair(1.0, 1.0);
}

std::string describe(const HeatMap& map) {
  std::string text;
  for (const HeatCell& cell : map.cells) text += (text.empty() ? "" : "; ") + cell.note;
  return text + ".";
}

}  // namespace

HeatScale scale_of(const std::vector<HeatMap>& maps, Unit unit) {
  const auto [low, high] = range_of(maps);
  if (unit == Unit::kTimeRatio && low <= 1 && 1 <= high) {
    const double end = std::max({high, 1 / low, kLeastSpan});
    return {unit, 1 / end, end, true};
  }
  const double widen = std::sqrt(std::max(1.0, kLeastSpan * low / high));
  return {unit, low / widen, high * widen, false};
}

Panel draw(const HeatMap& map) {
  const double left = widest(map.rows) + 10;
  const auto columns = static_cast<double>(map.columns.size()), rows = static_cast<double>(map.rows.size());
  const double cell = std::max(widest_cell(map), std::min((kPanelWidth - left) / columns, 76.0));
  const double top = kTop + (map.subtitle.empty() ? 0 : kSubtitleHeight), bottom = top + rows * kCellHeight;
  Markup svg;
  draw_heading(svg, map.title, map.subtitle);
  svg.element("text", {{"class", "small"}, {"x", 0.0}, {"y", top - 8}}, map.row_label + " ↓").line_break();
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = top + static_cast<double>(row) * kCellHeight;
    svg.element("text", {{"class", "small end"}, {"x", left - 7}, {"y", y + kCellHeight / 2 + 3}}, map.rows[row]);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      draw_cell(svg, map, map.cells[row * map.columns.size() + column], left + static_cast<double>(column) * cell, y,
                cell);
    }
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    const double x = left + (static_cast<double>(column) + .5) * cell - kGap / 2;
    svg.element("text", {{"class", "small middle"}, {"x", x}, {"y", bottom + 13}}, map.columns[column]);
  }
  const double right = left + columns * cell;
  svg.element("text", {{"class", "small end"}, {"x", right}, {"y", bottom + 31}}, map.column_label + " →").line_break();
  draw_scale(svg, map, left, bottom + 46);
  svg.line_break();
  return {right > kPanelWidth + 1 ? right : kPanelWidth, bottom + 74,
          map.subtitle.empty() ? map.title : map.title + ", " + map.subtitle, describe(map), svg.str()};
}

}  // namespace logitless::report
