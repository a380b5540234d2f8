// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/markup.h"
#include "report/scale.h"
#include "report/style.h"

namespace logitless::report {
namespace {

constexpr double kHeight = 264;
constexpr double kTop = 50, kBottom = kHeight - 44;
constexpr double kLeft = 62;
constexpr double kInset = 10;     // Between the frame and the outermost points.
constexpr double kLabelGap = 14;  // Between the baselines of two labels.
constexpr int kMostTicks = 7;
constexpr double kLogSpanX = 3;  // Sweeps double or quadruple as a rule: their logarithm spaces them evenly.
constexpr double kLogSpanY = 10;

struct Axes {
  double right;
  Scale x, y;
  std::vector<double> y_ticks;
  bool log_y;
};

Scale x_scale(const LineChart& chart, double right) {
  const double low = chart.positions.front().x, high = chart.positions.back().x;
  const bool logarithmic = !chart.ordinal && low > 0 && high > low * kLogSpanX;
  return Scale(low, high, kLeft + kInset, right - kInset, logarithmic);
}

Axes axes_of(const LineChart& chart) {
  double widest = 0;
  for (const LineSeries& series : chart.series) widest = std::max(widest, text_width(series.contender, 12, true));
  const double right = kPanelWidth - std::min(widest, 110.0) - 14;
  const auto [low, high] = chart.range;
  const bool log_y = high > low * kLogSpanY;
  const std::vector<double> ticks =
      log_y ? log_ticks(low, high, kMostTicks, chart.unit) : linear_ticks(high, kMostTicks - 2, chart.unit);
  return {right, x_scale(chart, right), Scale(ticks.front(), ticks.back(), kBottom, kTop, log_y), ticks, log_y};
}

// Whether every `stride`-th label, counted from the last, leaves room for its neighbours.
bool labels_fit(const LineChart& chart, const Axes& axes, size_t stride) {
  double free = kPanelWidth;
  for (size_t i = chart.positions.size(); i > 0; i -= std::min(i, stride)) {
    const LinePosition& position = chart.positions[i - 1];
    const double x = axes.x(position.x), half = text_width(position.label, 11) / 2;
    if (x + half > free) return false;
    free = x - half - 5;
  }
  return true;
}

void draw_x_ticks(Markup& svg, const LineChart& chart, const Axes& axes) {
  for (const LinePosition& position : chart.positions) {
    const double x = axes.x(position.x);
    svg.empty("line", {{"class", "axis"}, {"x1", x}, {"x2", x}, {"y1", kBottom}, {"y2", kBottom + 4}});
  }
  size_t stride = 1;
  while (stride < chart.positions.size() && !labels_fit(chart, axes, stride)) ++stride;
  for (size_t i = chart.positions.size(); i > 0; i -= std::min(i, stride)) {
    const LinePosition& position = chart.positions[i - 1];
    svg.element("text", {{"class", "small middle"}, {"x", axes.x(position.x)}, {"y", kBottom + 17}}, position.label);
  }
  svg.element("text", {{"class", "small end"}, {"x", axes.right}, {"y", kBottom + 36}}, chart.x_label + " →");
  svg.line_break();
}

void draw_y_ticks(Markup& svg, const LineChart& chart, const Axes& axes) {
  for (const double tick : axes.y_ticks) {
    const double y = axes.y(tick);
    const bool base = tick == axes.y_ticks.front();
    svg.empty("line", {{"class", base ? "axis" : "grid"}, {"x1", kLeft}, {"x2", axes.right}, {"y1", y}, {"y2", y}});
    svg.element("text", {{"class", "small end"}, {"x", kLeft - 7}, {"y", y + 4}},
                tick_label(tick, chart.unit, axes.log_y ? tick : axes.y_ticks.back()));
  }
  svg.line_break();
}

// A path through the marks that hold a value; one alone makes no line.
std::string path_of(const LineSeries& series, const Axes& axes) {
  std::string path;
  bool pen_down = false;
  for (const LineMark& mark : series.marks) {
    if (!mark.failed) path += path_step(pen_down ? 'L' : 'M', axes.x(mark.x), axes.y(mark.y));
    pen_down = !mark.failed;
  }
  return path;
}

void draw_spread(Markup& svg, const LineMark& mark, const Axes& axes) {
  const double x = axes.x(mark.x), low = axes.y(mark.y - mark.spread), high = axes.y(mark.y + mark.spread);
  svg.empty("path",
            {{"class", "spread"},
             {"d", path_step('M', x - 4, high) + "h8" + path_step('M', x, high) + path_step('L', x, low) + "m-4 0h8"}});
}

// `failures_at_x` crosses stand there already.
void draw_cross(Markup& svg, const LineMark& mark, const Axes& axes, size_t failures_at_x) {
  const double y = kTop + 12 * static_cast<double>(failures_at_x);
  svg.open("path", {{"class", "cross"}, {"d", path_step('M', axes.x(mark.x) - 4, y - 4) + "l8 8m-8 0l8-8"}});
  svg.element("title", mark.note).close();
}

void draw_series(Markup& svg, const LineSeries& series, const Axes& axes, std::vector<double>& failures) {
  svg.open("g", {{"class", series_class(series.contender)}});
  svg.empty("path",
            {{"class", "line"}, {"d", path_of(series, axes)}, {"stroke-dasharray", series_dash(series.contender)}});
  for (const LineMark& mark : series.marks) {
    if (mark.failed) {
      draw_cross(svg, mark, axes, static_cast<size_t>(std::count(failures.begin(), failures.end(), mark.x)));
      failures.push_back(mark.x);
      continue;
    }
    if (mark.spread > 0) draw_spread(svg, mark, axes);
    draw_marker(svg, series.contender, axes.x(mark.x), axes.y(mark.y), mark.note, axes.log_y && !(mark.y > 0));
  }
  svg.close().line_break();
}

// Moves labels that would overlap apart, in the order of their lines' ends, both by the same way; one push may cause
// the next, and a hundred rounds settle any legend.
void spread_out(std::vector<double>& ys) {
  std::vector<size_t> order(ys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ys[a] < ys[b]; });
  for (int round = 0; round < 100; ++round) {
    for (size_t i = 1; i < order.size(); ++i) {
      double &above = ys[order[i - 1]], &below = ys[order[i]];
      const double lacking = kLabelGap - (below - above);
      if (lacking <= 0) continue;
      above -= lacking / 2;
      below += lacking / 2;
    }
  }
  double limit = kBottom;
  for (size_t i = order.size(); i-- > 0; limit -= kLabelGap) ys[order[i]] = std::min(ys[order[i]], limit);
}

// The last mark that holds a value, null where all failed.
const LineMark* end_of(const LineSeries& series) {
  const auto holds = [](const LineMark& mark) { return !mark.failed; };
  const auto last = std::find_if(series.marks.rbegin(), series.marks.rend(), holds);
  return last != series.marks.rend() ? &*last : nullptr;
}

void draw_labels(Markup& svg, const LineChart& chart, const Axes& axes) {
  std::vector<double> ys;
  for (const LineSeries& series : chart.series) {
    const LineMark* end = end_of(series);
    ys.push_back(end ? axes.y(end->y) : kTop);
  }
  spread_out(ys);
  for (size_t i = 0; i < ys.size(); ++i) {
    const LineSeries& series = chart.series[i];
    svg.open("g", {{"class", series_class(series.contender)}});
    const LineMark* end = end_of(series);
    if (end && end->x != chart.positions.back().x) {
      const std::string path = path_step('M', axes.x(end->x), axes.y(end->y)) + path_step('L', axes.right + 3, ys[i]);
      svg.empty("path", {{"class", "leader"}, {"d", path}});
    }
    svg.element("text", {{"class", "label"}, {"x", axes.right + 6}, {"y", ys[i] + 4}}, series.contender);
    svg.close().line_break();
  }
}

std::string subtitle_of(const LineChart& chart, const Axes& axes) {
  std::string text = chart.subtitle;
  if (!axes.log_y) return text;
  text += text.empty() ? "log scale" : ", log scale";
  const auto has_zero = [](const LineSeries& series) {
    return std::any_of(series.marks.begin(), series.marks.end(),
                       [](const LineMark& mark) { return !mark.failed && !(mark.y > 0); });
  };
  if (std::any_of(chart.series.begin(), chart.series.end(), has_zero)) text += ", hollow: 0";
  return text;
}

std::string describe(const LineChart& chart) {
  std::string text;
  for (const LineSeries& series : chart.series) {
    for (const LineMark& mark : series.marks) text += (text.empty() ? "" : "; ") + mark.note;
  }
  return text + ".";
}

}  // namespace

void LineRange::include(const LineMark& mark) {
  if (mark.failed) return;
  if (mark.y > 0) low = std::min(low, mark.y);
  high = std::max(high, mark.y + mark.spread);
}

Panel draw(const LineChart& chart) {
  const Axes axes = axes_of(chart);
  Markup svg;
  draw_heading(svg, chart.title, subtitle_of(chart, axes));
  draw_y_ticks(svg, chart, axes);
  draw_x_ticks(svg, chart, axes);
  std::vector<double> failures;
  for (const LineSeries& series : chart.series) draw_series(svg, series, axes, failures);
  draw_labels(svg, chart, axes);
  return {kPanelWidth, kHeight, chart.title + " against " + chart.x_label, describe(chart), svg.str()};
}

}  // namespace logitless::report
