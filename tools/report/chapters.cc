// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/chapters.h"

#include <algorithm>
#include <cmath>

#include "report/bar_chart.h"
#include "report/heat_map.h"
#include "report/line_chart.h"
#include "report/metric.h"
#include "report/shape_text.h"
#include "report/sweep.h"

namespace logitless::report {
namespace {

// A size that some swept keys change.
struct ShapeAxis {
  const char* key;
  const char* heading;
  const char* label;
  int64_t Shape::*size;
};

constexpr ShapeAxis kShapeAxes[] = {{"seq_len", "Against tokens", "tokens", &Shape::tokens},
                                    {"batch_size", "Against tokens", "tokens", &Shape::tokens},
                                    {"model.vocab_size", "Against the vocabulary", "vocabulary entries", &Shape::vocab},
                                    {"model.hidden_size", "Against the hidden size", "hidden size", &Shape::hidden}};

const ShapeAxis* shape_axis(const SweptKey& swept) {
  for (const ShapeAxis& axis : kShapeAxes) {
    if (swept.key == axis.key) return &axis;
  }
  return nullptr;
}

std::vector<std::string> contenders_in(const BenchRun& run, const std::vector<const Point*>& points) {
  std::vector<std::string> names;
  for (const std::string& name : run.contenders) {
    const auto takes_part = [&](const Point* point) { return point->find(name) != nullptr; };
    if (std::any_of(points.begin(), points.end(), takes_part)) names.push_back(name);
  }
  return names;
}

// Whether dense and another contender ran at one of the points.
bool has_quotients(const std::vector<const Point*>& points) {
  return std::any_of(points.begin(), points.end(), [](const Point* point) { return point->has_quotients(); });
}

std::string caption_of(const std::vector<const Point*>& points) {
  std::string caption = common_shape(points);
  const auto has_forward = [](const Point* point) { return point->find(kForward) != nullptr; };
  if (std::any_of(points.begin(), points.end(), has_forward)) {
    caption += std::string(caption.empty() ? "" : ". ") + "forward computes the loss alone, without gradients";
  }
  return caption.empty() ? caption : caption + ".";
}

// Where each value of a key lies along x.
class Along {
 public:
  Along(const BenchRun& run, size_t key) : swept_(run.sweep[key]), key_(key), shape_(shape_axis(swept_)) {
    const auto is_number = [](const std::string& value) { return number_in(value).has_value(); };
    ordinal_ = !shape_ && !std::all_of(swept_.values.begin(), swept_.values.end(), is_number);
  }
  bool ordinal() const { return ordinal_; }
  std::string label() const { return shape_ ? shape_->label : swept_.key; }

  LinePosition operator()(const Point& point) const {
    const std::string& value = point.at[key_];
    if (shape_) return {static_cast<double>(point.shape.*shape_->size), grouped(point.shape.*shape_->size)};
    if (!ordinal_) return {*number_in(value), value};
    const auto place = std::find(swept_.values.begin(), swept_.values.end(), value) - swept_.values.begin();
    return {static_cast<double>(place), value};
  }

 private:
  const SweptKey& swept_;
  size_t key_;
  const ShapeAxis* shape_;
  bool ordinal_;
};

LineChart line_chart(const BenchRun& run, const Slice& slice, const Along& along, const Metric& metric) {
  std::vector<const Point*> points = slice.points;
  std::stable_sort(points.begin(), points.end(),
                   [&](const Point* a, const Point* b) { return along(*a).x < along(*b).x; });
  LineChart chart{metric.title, slice.title, along.label(), {}, along.ordinal(), metric.unit, {}, {}};
  for (const Point* point : points) chart.positions.push_back(along(*point));
  for (const std::string& name : contenders_in(run, points)) {
    LineSeries series{name, {}};
    for (const Point* point : points) {
      const Measurement* measurement = point->find(name);
      if (!measurement) continue;
      const double value = metric.value(*point, *measurement);
      if (measurement->ok() && !std::isfinite(value)) continue;
      const LinePosition position = along(*point);
      series.marks.push_back({position.x, value, metric.spread(*point, *measurement),
                              say(*point, *measurement, metric) + " at " + position.label + " " + along.label(),
                              !measurement->ok()});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// One chart for each slice, all with the same range of y.
void add_lines(Chapter& chapter, const BenchRun& run, const std::vector<Slice>& slices, const Along& along,
               const Metric& metric) {
  std::vector<LineChart> charts;
  LineRange range;
  for (const Slice& slice : slices) charts.push_back(line_chart(run, slice, along, metric));
  for (const LineChart& chart : charts) {
    for (const LineSeries& series : chart.series) {
      for (const LineMark& mark : series.marks) range.include(mark);
    }
  }
  for (size_t i = 0; i < charts.size(); ++i) {
    charts[i].range = range;
    chapter.rows[i].push_back(draw(charts[i]));
  }
}

Chapter line_chapter(const BenchRun& run, size_t key, const VaryingKeys& keys) {
  const ShapeAxis* shape = shape_axis(run.sweep[key]);
  Chapter chapter{shape ? shape->heading : "Against " + run.sweep[key].key, "", shape != nullptr, {}};
  const Along along(run, key);
  const std::vector<Slice> slices = cut(run, {key}, keys.axes);
  std::vector<const Point*> shown;
  for (const Slice& slice : slices) shown.insert(shown.end(), slice.points.begin(), slice.points.end());
  chapter.caption = caption_of(shown);
  chapter.rows.resize(slices.size());
  add_lines(chapter, run, slices, along, kMemory);
  add_lines(chapter, run, slices, along, kTime);
  if (has_quotients(shown)) add_lines(chapter, run, slices, along, kTimeRatio);
  return chapter;
}

HeatCell heat_cell(const Point& point, const std::string& contender, const Metric& metric) {
  const Measurement* measurement = point.find(contender);
  if (!measurement) return {std::nullopt, "–", contender + " was not measured"};
  const std::string note = say(point, *measurement, metric);
  if (!measurement->ok()) return {std::nullopt, "failed", note};
  const double value = metric.value(point, *measurement);
  if (std::isnan(value)) return {std::nullopt, "–", contender + ": dense, to divide by, is missing"};
  return {value, human(value, metric.unit), note};
}

std::string heat_title(const std::string& contender, const Metric& metric) {
  switch (metric.unit) {
    case Unit::kMemoryRatio:
      return "Extra peak memory, dense ÷ " + contender;
    case Unit::kTimeRatio:
      return "Time, " + contender + " ÷ dense";
    default:
      return std::string(metric.title) + ", " + contender;
  }
}

HeatMap heat_map(const BenchRun& run, const Slice& slice, size_t row_key, size_t column_key,
                 const std::string& contender, const Metric& metric) {
  const SweptKey &rows = run.sweep[row_key], &columns = run.sweep[column_key];
  HeatMap map{heat_title(contender, metric), slice.title, rows.key, columns.key, rows.values, columns.values, {}, {}};
  for (const std::string& row : rows.values) {
    for (const std::string& column : columns.values) {
      const auto is_here = [&](const Point* p) { return p->at[row_key] == row && p->at[column_key] == column; };
      const auto point = std::find_if(slice.points.begin(), slice.points.end(), is_here);
      map.cells.push_back(point != slice.points.end() ? heat_cell(**point, contender, metric)
                                                      : HeatCell{std::nullopt, "", contender + ": not measured"});
      map.cells.back().note += " at " + rows.key + " = " + row + ", " + columns.key + " = " + column;
    }
  }
  return map;
}

// A row of memory and time for each slice. All maps of a contender share one scale of colours, so that they can be held
// against each other.
void add_heat_rows(Chapter& chapter, const BenchRun& run, const std::vector<Slice>& slices, size_t row_key,
                   size_t column_key, const std::string& contender, std::initializer_list<Metric> metrics) {
  const size_t first_row = chapter.rows.size();
  chapter.rows.resize(first_row + slices.size());
  for (const Metric& metric : metrics) {
    std::vector<HeatMap> maps;
    for (const Slice& slice : slices) maps.push_back(heat_map(run, slice, row_key, column_key, contender, metric));
    const HeatScale scale = scale_of(maps, metric.unit);
    for (size_t i = 0; i < maps.size(); ++i) {
      maps[i].scale = scale;
      chapter.rows[first_row + i].push_back(draw(maps[i]));
    }
  }
}

Chapter heat_chapter(const BenchRun& run, size_t row_key, size_t column_key) {
  const std::vector<const Point*> points = all_points(run);
  Chapter chapter{
      "The sweep: " + run.sweep[row_key].key + " × " + run.sweep[column_key].key, caption_of(points), false, {}};
  const std::vector<Slice> slices = cut(run, {row_key, column_key});
  if (!has_quotients(points)) {
    for (const std::string& contender : contenders_in(run, points)) {
      add_heat_rows(chapter, run, slices, row_key, column_key, contender, {kMemory, kTime});
    }
    return chapter;
  }
  for (const std::string& contender : contenders_in(run, points)) {
    if (contender == kDense) continue;
    add_heat_rows(chapter, run, slices, row_key, column_key, contender, {kMemoryRatio, kTimeRatio});
  }
  return chapter;
}

// "32× less", "1.3× more" or "as dense", for a quotient dense ÷ contender.
std::string memory_words(double quotient) {
  if (memory_ratio(quotient) == memory_ratio(1)) return "as dense";
  return quotient > 1 ? memory_ratio(quotient) + " less" : memory_ratio(1 / quotient) + " more";
}

std::string bar_label(const Point& point, const Measurement& measurement, const Metric& metric) {
  if (!measurement.ok()) return "failed";
  const std::string text = human(metric.value(point, measurement), metric.unit);
  const bool is_time = metric.unit == Unit::kSeconds;
  const double quotient = (is_time ? kTimeRatio : kMemoryRatio).value(point, measurement);
  if (measurement.contender == kDense || !std::isfinite(quotient)) return text;
  return text + " (" + (is_time ? time_ratio(quotient) : memory_words(quotient)) + ")";
}

BarChart bar_chart(const BenchRun& run, const Slice& slice, const Metric& metric) {
  const Point& point = *slice.points.front();
  BarChart chart{metric.title, slice.title, {}};
  for (const std::string& name : contenders_in(run, slice.points)) {
    const Measurement& measurement = *point.find(name);
    chart.bars.push_back({name, metric.value(point, measurement), metric.spread(point, measurement),
                          bar_label(point, measurement, metric), !measurement.ok()});
  }
  return chart;
}

Chapter bar_chapter(const BenchRun& run) {
  Chapter chapter{"Memory and time", caption_of(all_points(run)), false, {}};
  for (const Slice& slice : cut(run, {})) {
    chapter.rows.push_back({draw(bar_chart(run, slice, kMemory)), draw(bar_chart(run, slice, kTime))});
  }
  return chapter;
}

}  // namespace

std::vector<Chapter> chapters(const BenchRun& run) {
  const VaryingKeys keys = varying_keys(run);
  std::vector<Chapter> list;
  for (const size_t key : keys.axes) {
    if (shape_axis(run.sweep[key]) || keys.axes.size() == 1) list.push_back(line_chapter(run, key, keys));
  }
  if (keys.axes.size() >= 2) list.push_back(heat_chapter(run, keys.axes[0], keys.axes[1]));
  if (keys.axes.empty()) list.push_back(bar_chapter(run));
  return list;
}

}  // namespace logitless::report
