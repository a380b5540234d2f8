// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/table.h"

#include <cmath>

#include "report/metric.h"
#include "report/shape_text.h"
#include "report/units.h"

namespace logitless::report {
namespace {

constexpr const char* kColumns[] = {"contender",  "time",         "time ÷ dense", "first call", "efficiency",
                                    "extra peak", "dense ÷ peak", "workspace",    "loss",       "plan"};
constexpr size_t kColumnCount = std::size(kColumns);

constexpr const char* kLegend =
    "Time: median of the timed calls ± half the distance between their quartiles. First call: before any warm-up. "
    "Efficiency: the plan's own multiply-adds ÷ time ÷ the rate of one large GEMM in the same run. Extra peak: memory "
    "above inputs and outputs. Workspace: what the plan asks for.";

void number_cell(Markup& html, const std::string& text) { html.element("td", {{"class", "number"}}, text); }

std::string quotient(double numerator, double denominator, std::string (*format)(double)) {
  return denominator > 0 ? format(numerator / denominator) : "–";
}

void write_figures(Markup& html, const Measurement& m, const Measurement* dense) {
  number_cell(html, human_seconds(m.median_s) + " " + spread_text(m.median_s, m.spread_s));
  number_cell(html, dense ? quotient(m.median_s, dense->median_s, time_ratio) : "–");
  number_cell(html, human_seconds(m.first_s));
  number_cell(html, m.gemm_efficiency ? fixed(100 * *m.gemm_efficiency, 0) + " %" : "–");
  number_cell(html, human_bytes(m.extra_peak_bytes));
  number_cell(html, dense ? quotient(static_cast<double>(dense->extra_peak_bytes),
                                     static_cast<double>(m.extra_peak_bytes), memory_ratio)
                          : "–");
  number_cell(html, human_bytes(m.workspace_bytes));
  number_cell(html, std::isnan(m.loss) ? "not finite" : fixed(m.loss, 6));
  html.element("td", m.plan);
}

void write_measurement(Markup& html, const Measurement& measurement, const Measurement* dense) {
  html.open("tr").element("th", {{"scope", "row"}}, measurement.contender);
  if (measurement.ok()) {
    write_figures(html, measurement, dense);
  } else {
    html.element("td", {{"class", "error"}, {"colspan", static_cast<double>(kColumnCount - 1)}},
                 "error: " + measurement.error);
  }
  html.close().line_break();
}

// Sizes other than the tokens are swept under their own names or stand above the table, common to all points.
std::string heading_of(const BenchRun& run, const Point& point) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : " · ") + part;
  };
  for (size_t key = 0; key < run.sweep.size(); ++key) add(run.sweep[key].key + " = " + point.at[key]);
  add(grouped(point.shape.tokens) + " tokens");
  add(point.task + ", level " + point.level);
  if (point.gemm_rate_flops) add("GEMM " + trimmed(*point.gemm_rate_flops / 1e9, 1) + " GFLOP/s");
  return text;
}

}  // namespace

void write_table(Markup& html, const BenchRun& run) {
  const std::vector<const Point*> points = all_points(run);
  html.element("p", {{"class", "quiet"}}, kLegend).line_break();
  html.element("p", {{"class", "quiet"}}, common_shape(points)).line_break();
  html.open("div", {{"class", "scroll"}, {"role", "region"}, {"aria-label", "All points"}, {"tabindex", "0"}});
  html.open("table").open("thead").open("tr");
  for (const char* column : kColumns) html.element("th", {{"scope", "col"}}, column);
  html.close().close().line_break();
  for (const Point* point : points) {
    html.open("tbody").open("tr", {{"class", "point"}});
    html.open("th", {{"scope", "rowgroup"}, {"colspan", static_cast<double>(kColumnCount)}});
    html.element("span", heading_of(run, *point)).close().close().line_break();
    const Measurement* dense = point->find_ok(kDense);
    for (const Measurement& measurement : point->measurements) write_measurement(html, measurement, dense);
    html.close();
  }
  html.close().close().line_break();
}

}  // namespace logitless::report
