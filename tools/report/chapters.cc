// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/chapters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/metric.h"
#include "report/sweep.h"

namespace logitless::report {
namespace {

using Json = nlohmann::ordered_json;
using Slices = std::vector<Slice>;

constexpr double kLogSpanX = 3;  // Sweeps double or quadruple as a rule: their logarithm spaces them evenly.
constexpr double kLogSpanY = 10;
constexpr double kLeastHeatSpan = 1.1;  // Less than ten percent between the ends would paint noise.

// The smallest value above 0, and the largest.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;

  void include(double value) {
    if (!(value > 0) || std::isinf(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string title_of(Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return "Extra peak memory";
    case Unit::kSeconds:
      return "Time of one call";
    case Unit::kMemoryRatio:
      return "Extra peak memory, dense ÷ contender";
    case Unit::kTimeRatio:
      return "Time ÷ time of dense";
  }
  return "";
}

bool has_quotients(const std::vector<const Point*>& points) {
  return std::any_of(points.begin(), points.end(), [](const Point* point) { return point->has_quotients(); });
}

std::vector<std::string> contenders_in(const BenchRun& run, const std::vector<const Point*>& points) {
  std::vector<std::string> names = run.contenders;
  std::erase_if(names, [&](const std::string& name) {
    return std::none_of(points.begin(), points.end(), [&](const Point* point) { return point->find(name); });
  });
  return names;
}

std::vector<const Point*> points_of(const Slices& slices) {
  std::vector<const Point*> points;
  for (const Slice& slice : slices) points.insert(points.end(), slice.points.begin(), slice.points.end());
  return points;
}

Json chapter(const std::string& heading, const Slices& slices, Json rows) {
  const std::vector<const Point*> points = points_of(slices);
  std::string caption = common_shape(points);
  if (std::any_of(points.begin(), points.end(), [](const Point* point) { return point->find(kForward); })) {
    caption += std::string(caption.empty() ? "" : ". ") + "forward computes the loss alone, without gradients";
  }
  if (!caption.empty()) caption += ".";
  return {{"heading", heading}, {"caption", caption}, {"rows", std::move(rows)}};
}

// A contender at a point: "7.64 s" for the eye, "one_pass: 7.64 s ± 1.2 %" as the note.
Json figure(const Point& point, const Measurement& m, Unit unit) {
  const double value = value_of(point, m, unit), spread = spread_of(point, m, unit);
  const std::string text = m.ok() ? text_of(point, m, unit) : "failed";
  std::string note = m.contender + ": " + text;
  if (spread > 0) note += " " + spread_text(value, spread);
  if (!m.ok()) note = m.contender + " failed: " + m.error;
  return {{"value", value}, {"spread", spread}, {"text", text}, {"note", note}, {"failed", !m.ok()}};
}

// The marks of one contender at all points, in the order of x; `along` is null for bars.
Json marks_of(const std::string& contender, const Slice& slice, const Axis* along, Unit unit) {
  Json marks = Json::array();
  for (const Point* point : slice.points) {
    const Measurement* m = point->find(contender);
    if (!m || (m->ok() && !std::isfinite(value_of(*point, *m, unit)))) continue;
    marks.push_back(figure(*point, *m, unit));
    if (!along) continue;
    const Tick tick = along->tick(*point);
    marks.back()["x"] = tick.x;
    marks.back()["note"].get_ref<std::string&>() += " at " + tick.label + " " + along->label();
  }
  return marks;
}

Json ticks_of(const Axis& along, const Slice& slice) {
  const double low = along.tick(*slice.points.front()).x, high = along.tick(*slice.points.back()).x;
  Json ticks = Json::array();
  for (const Point* point : slice.points) {
    const Tick tick = along.tick(*point);
    ticks.push_back({tick.x, tick.label});
  }
  return {{"label", along.label()}, {"log", !along.ordinal() && low > 0 && high > low * kLogSpanX}, {"ticks", ticks}};
}

Json chart(const BenchRun& run, const Slice& slice, const Axis* along, Unit unit, const Range& range) {
  Json series = Json::array();
  std::string description;
  bool has_zero = false;
  for (const std::string& name : contenders_in(run, slice.points)) {
    series.push_back({{"name", name}, {"marks", marks_of(name, slice, along, unit)}});
    for (const Json& mark : series.back()["marks"]) {
      description += (description.empty() ? "" : "; ") + mark["note"].get<std::string>();
      has_zero = has_zero || (!mark["failed"] && mark["value"] == 0);
    }
  }
  const bool log = along && range.high > range.low * kLogSpanY;
  const auto [size, suffix] = magnitude(log ? std::sqrt(range.low * range.high) : range.high, unit);
  std::string subtitle = slice.title;
  if (log) subtitle += std::string(subtitle.empty() ? "" : ", ") + "log scale" + (has_zero ? ", 0 at its foot" : "");
  return {{"is_chart", true},
          {"title", title_of(unit)},
          {"subtitle", subtitle},
          {"description", description + "."},
          {"unit", {{"size", size}, {"suffix", suffix}}},
          {"log", log},
          {"range", {log ? range.low : 0, range.high > 0 ? range.high : 1}},
          {"x", along ? ticks_of(*along, slice) : Json(nullptr)},
          {"series", std::move(series)}};
}

// A row for each slice, with a chart for each unit.
Json chart_rows(const BenchRun& run, Slices slices, const Axis* along) {
  std::vector<Unit> units = {Unit::kBytes, Unit::kSeconds};
  if (along && has_quotients(points_of(slices))) units.push_back(Unit::kTimeRatio);
  Json rows(slices.size(), {{"drawings", Json::array()}});
  for (Slice& slice : slices) {
    if (!along) continue;
    std::stable_sort(slice.points.begin(), slice.points.end(),
                     [&](const Point* a, const Point* b) { return along->tick(*a).x < along->tick(*b).x; });
  }
  for (const Unit unit : units) {
    Range range;
    for (const Point* point : points_of(slices)) {
      for (const Measurement& m : point->measurements) {
        range.include(value_of(*point, m, unit));
        range.include(value_of(*point, m, unit) + spread_of(*point, m, unit));
      }
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      rows[i]["drawings"].push_back(chart(run, slices[i], along, unit, range));
    }
  }
  return rows;
}

// The colours of some heat maps: all maps of a contender and a unit share one scale, so that they can be held against
// each other. A quotient of times whose values lie on both sides of 1 gets two tones, with 1 where they meet.
struct HeatScale {
  double low, high;
  bool two_tones;

  HeatScale(const Range& range, Unit unit)
      : low(range.high > 0 ? range.low : 1),
        high(range.high > 0 ? range.high : 1),
        two_tones(unit == Unit::kTimeRatio && low <= 1 && 1 <= high) {
    const double widen = std::sqrt(std::max(1.0, kLeastHeatSpan * low / high));
    high = two_tones ? std::max({high, 1 / low, kLeastHeatSpan}) : high * widen;
    low = two_tones ? 1 / high : low / widen;
  }
  const char* tone(double value) const { return two_tones && value > 1 ? "high" : "low"; }
  double share(double value) const {
    const double log = std::log(std::clamp(value, low, high));
    return two_tones ? std::abs(log) / std::log(high) : (log - std::log(low)) / std::log(high / low);
  }
};

Json heat_cell(const Point* point, const std::string& contender, Unit unit, const HeatScale& scale) {
  const Measurement* m = point ? point->find(contender) : nullptr;
  if (!m) return {{"text", point ? "–" : ""}, {"note", contender + " was not measured"}, {"tone", ""}, {"share", "0"}};
  Json cell = figure(*point, *m, unit);
  const double value = value_of(*point, *m, unit);
  cell["tone"] = std::isnan(value) ? "" : scale.tone(value);
  cell["share"] = fixed(std::isnan(value) ? 0 : scale.share(value), 3);
  return cell;
}

std::string heat_title(const std::string& contender, Unit unit) {
  if (unit == Unit::kMemoryRatio) return "Extra peak memory, dense ÷ " + contender;
  if (unit == Unit::kTimeRatio) return "Time, " + contender + " ÷ dense";
  return title_of(unit) + ", " + contender;
}

Json heat_map(const BenchRun& run, const Slice& slice, size_t row_key, size_t column_key, const std::string& contender,
              Unit unit, const HeatScale& scale) {
  const SweptKey &rows = run.sweep[row_key], &columns = run.sweep[column_key];
  Json lines = Json::array();
  for (const std::string& row : rows.values) {
    Json cells = Json::array();
    for (const std::string& column : columns.values) {
      const auto point = std::find_if(slice.points.begin(), slice.points.end(), [&](const Point* p) {
        return p->at[row_key] == row && p->at[column_key] == column;
      });
      cells.push_back(heat_cell(point == slice.points.end() ? nullptr : *point, contender, unit, scale));
    }
    lines.push_back({{"value", row}, {"cells", std::move(cells)}});
  }
  const std::string colours =
      "colours from " + human(scale.low, unit) + " to " + human(scale.high, unit) + ", log scale";
  return {{"is_heat_map", true},
          {"title", heat_title(contender, unit)},
          {"subtitle", slice.title + (slice.title.empty() ? "" : "; ") + colours},
          {"row_key", rows.key},
          {"column_key", columns.key},
          {"columns", columns.values},
          {"lines", std::move(lines)}};
}

// Quotients of the contenders, or sizes where dense is missing: a row of memory and time for each slice.
Json heat_rows(const BenchRun& run, const Slices& slices, size_t row_key, size_t column_key) {
  const std::vector<const Point*> points = points_of(slices);
  const bool quotients = has_quotients(points);
  Json rows = Json::array();
  for (const std::string& contender : contenders_in(run, points)) {
    if (quotients && contender == kDense) continue;
    const size_t first_row = rows.size();
    for (size_t i = 0; i < slices.size(); ++i) rows.push_back({{"drawings", Json::array()}});
    for (const Unit unit :
         quotients ? std::array{Unit::kMemoryRatio, Unit::kTimeRatio} : std::array{Unit::kBytes, Unit::kSeconds}) {
      Range range;
      for (const Point* point : points) {
        if (const Measurement* m = point->find(contender)) range.include(value_of(*point, *m, unit));
      }
      const HeatScale scale(range, unit);
      for (size_t i = 0; i < slices.size(); ++i) {
        rows[first_row + i]["drawings"].push_back(
            heat_map(run, slices[i], row_key, column_key, contender, unit, scale));
      }
    }
  }
  return rows;
}

}  // namespace

Json chapters(const BenchRun& run) {
  const std::vector<size_t> axes = axis_keys(run);
  Json list = Json::array();
  for (const size_t key : axes) {
    const Axis along(run, key);
    if (!along.is_shape() && axes.size() > 1) continue;
    const Slices slices = cut(run, {key}, axes);
    list.push_back(chapter("Against " + along.label(), slices, chart_rows(run, slices, &along)));
  }
  if (axes.size() >= 2) {
    const size_t rows = axes[0], columns = axes[1];
    const Slices slices = cut(run, {rows, columns});
    list.push_back(chapter("The sweep: " + run.sweep[rows].key + " × " + run.sweep[columns].key, slices,
                           heat_rows(run, slices, rows, columns)));
  }
  if (axes.empty()) {
    const Slices slices = cut(run, {});
    list.push_back(chapter("Memory and time", slices, chart_rows(run, slices, nullptr)));
  }
  return list;
}

}  // namespace logitless::report
