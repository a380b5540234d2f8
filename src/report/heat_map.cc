// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/heat_map.h"

#include <algorithm>
#include <cmath>

#include "report/markup.h"
#include "report/scale.h"
#include "report/style.h"

namespace logitless::report {
namespace {

constexpr double kTop = 60, kCellHeight = 30, kGap = 2;
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
  const Scale step(map.low, map.high, 0, kHeatSteps, true);
  const double w = width - kGap, h = kCellHeight - kGap;
  if (cell.value) {
    const int at = std::clamp(static_cast<int>(step(*cell.value)), 0, kHeatSteps - 1);
    svg.open("g", {{"class", heat_class(map.diverging, at)}});
    svg.empty("rect", {{"x", x}, {"y", y}, {"width", w}, {"height", h}, {"rx", 2.0}});
  } else {
    svg.open("g");
    svg.empty("rect", {{"class", "absent"},
                       {"x", x + .5},
                       {"y", y + .5},
                       {"width", w - 1},
                       {"height", h - 1},
                       {"rx", 2.0},
                       {"stroke-dasharray", "3 3"}});
  }
  svg.element("text", {{"class", "small middle"}, {"x", x + w / 2}, {"y", y + h / 2 + 4}}, cell.text);
  svg.element("title", cell.note).close().line_break();
}

void draw_scale(Markup& svg, const HeatMap& map, double x, double y) {
  svg.element("text", {{"class", "small"}, {"x", x}, {"y", y + 9}}, map.low_text);
  x += text_width(map.low_text, 11) + 6;
  for (int step = 0; step < kHeatSteps; ++step, x += kSwatch) {
    svg.open("g", {{"class", heat_class(map.diverging, step)}});
    svg.empty("rect", {{"x", x}, {"y", y}, {"width", kSwatch}, {"height", kSwatchHeight}}).close();
  }
  svg.element("text", {{"class", "small"}, {"x", x + 6}, {"y", y + 9}}, map.high_text);
  if (map.diverging) {
    svg.element("text", {{"class", "small middle"}, {"x", x - kSwatch * kHeatSteps / 2}, {"y", y + 23}}, "1×");
  }
}

std::string describe(const HeatMap& map) {
  std::string text;
  for (const HeatCell& cell : map.cells) text += (text.empty() ? "" : "; ") + cell.note;
  return text + ".";
}

}  // namespace

Panel draw(const HeatMap& map) {
  const double left = widest(map.rows) + 10;
  const auto columns = static_cast<double>(map.columns.size()), rows = static_cast<double>(map.rows.size());
  const double cell = std::max(widest_cell(map), std::min((kPanelWidth - left) / columns, 76.0));
  const double bottom = kTop + rows * kCellHeight;
  Markup svg;
  draw_heading(svg, map.title, map.subtitle);
  svg.element("text", {{"class", "small"}, {"x", 0.0}, {"y", kTop - 8}}, map.row_label + " ↓").line_break();
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kTop + static_cast<double>(row) * kCellHeight;
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
  return {std::max(kPanelWidth, right), bottom + 74, map.title + ", " + map.subtitle, describe(map), svg.str()};
}

}  // namespace logitless::report
