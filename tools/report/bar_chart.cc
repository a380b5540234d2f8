// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/bar_chart.h"

#include <algorithm>

#include "report/markup.h"
#include "report/scale.h"
#include "report/style.h"

namespace logitless::report {
namespace {

constexpr double kTop = 42, kRow = 30, kBar = 18;

double widest_name(const BarChart& chart) {
  double widest = 0;
  for (const Bar& bar : chart.bars) widest = std::max(widest, text_width(bar.contender, 12, true));
  return std::min(widest, 120.0);
}

double widest_label(const BarChart& chart) {
  double widest = 0;
  for (const Bar& bar : chart.bars) {
    if (!bar.failed) widest = std::max(widest, text_width(bar.label, 11));
  }
  return widest;
}

void draw_bar(Markup& svg, const Bar& bar, double y, double left, const Scale& length) {
  const double middle = y + kBar / 2;
  svg.open("g", {{"class", series_class(bar.contender)}});
  svg.element("text", {{"class", "label end"}, {"x", left - 8}, {"y", middle + 4}}, bar.contender);
  double end = left;
  if (!bar.failed) {
    end = length(bar.value);
    svg.empty("rect",
              {{"class", "bar"}, {"x", left}, {"y", y}, {"width", std::max(end - left, 1.0)}, {"height", kBar}});
  }
  svg.close();
  if (bar.spread > 0) {
    const double low = length(bar.value - bar.spread);
    end = length(bar.value + bar.spread);
    svg.empty("path", {{"class", "whisker"}, {"d", path_step('M', low, middle) + path_step('L', end, middle)}});
  }
  svg.element("text", {{"class", "small"}, {"x", end + 7}, {"y", middle + 4}}, bar.label).line_break();
}

}  // namespace

Panel draw(const BarChart& chart) {
  const double left = widest_name(chart) + 10;
  const double height = kTop + kRow * static_cast<double>(chart.bars.size());
  double high = 0;
  std::string description;
  for (const Bar& bar : chart.bars) {
    if (!bar.failed) high = std::max(high, bar.value + bar.spread);
    description += (description.empty() ? "" : "; ") + bar.contender + " " + bar.label;
  }
  const Scale length(0, high > 0 ? high : 1, left, std::max(left + 40, kPanelWidth - widest_label(chart) - 10), false);
  Markup svg;
  draw_heading(svg, chart.title, chart.subtitle);
  double y = kTop;
  for (const Bar& bar : chart.bars) {
    draw_bar(svg, bar, y, left, length);
    y += kRow;
  }
  svg.empty("line", {{"class", "axis"}, {"x1", left}, {"x2", left}, {"y1", kTop - 5}, {"y2", height - 7}}).line_break();
  return {kPanelWidth, height, chart.title, description + ".", svg.str()};
}

}  // namespace logitless::report
