// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/chapters.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "report/bar_chart.h"
#include "report/heat_map.h"
#include "report/line_chart.h"
#include "report/metric.h"
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

std::vector<const Point*> all_points(const Run& run) {
  std::vector<const Point*> points;
  for (const Point& point : run.points) points.push_back(&point);
  return points;
}

std::vector<std::string> contenders_in(const Run& run, const std::vector<const Point*>& points) {
  std::vector<std::string> names;
  for (const std::string& name : run.contenders) {
    const auto takes_part = [&](const Point* point) { return point->find(name) != nullptr; };
    if (std::any_of(points.begin(), points.end(), takes_part)) names.push_back(name);
  }
  return names;
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
  Along(const Run& run, size_t key) : swept_(run.sweep[key]), key_(key), shape_(shape_axis(swept_)) {
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

LineChart line_chart(const Run& run, const Slice& slice, const Along& along, const Metric& metric) {
  std::vector<const Point*> points = slice.points;
  std::stable_sort(points.begin(), points.end(),
                   [&](const Point* a, const Point* b) { return along(*a).x < along(*b).x; });
  LineChart chart{metric.title, slice.title, along.label(), {}, along.ordinal(), metric.unit, {}};
  for (const Point* point : points) chart.positions.push_back(along(*point));
  for (const std::string& name : contenders_in(run, points)) {
    LineSeries series{name, {}};
    for (const Point* point : points) {
      const Measurement* measurement = point->find(name);
      if (!measurement) continue;
      const LinePosition position = along(*point);
      series.marks.push_back({position.x, metric.value(*measurement), metric.spread(*measurement),
                              say(*measurement, metric) + " at " + position.label + " " + along.label(),
                              !measurement->ok()});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Chapter line_chapter(const Run& run, size_t key, const VaryingKeys& keys) {
  const ShapeAxis* shape = shape_axis(run.sweep[key]);
  Chapter chapter{shape ? shape->heading : "Against " + run.sweep[key].key, "", shape != nullptr, {}};
  const Along along(run, key);
  std::vector<const Point*> shown;
  for (const Slice& slice : cut(run, {key}, keys.axes)) {
    for (const Metric& metric : kMetrics) chapter.panels.push_back(draw(line_chart(run, slice, along, metric)));
    shown.insert(shown.end(), slice.points.begin(), slice.points.end());
  }
  chapter.caption = caption_of(shown);
  return chapter;
}

// What a cell shows of one contender: its quotient by the dense path, or, in a run without it, the figure itself.
class CellValue {
 public:
  CellValue(const Metric& metric, std::string contender, bool against_dense)
      : metric_(metric), contender_(std::move(contender)), against_dense_(against_dense) {}

  bool is_time_ratio() const { return against_dense_ && metric_.unit == Unit::kSeconds; }
  std::string title() const {
    if (!against_dense_) return std::string(metric_.title) + ", " + contender_;
    return std::string(metric_.title) + ", " + (is_time_ratio() ? contender_ + " ÷ dense" : "dense ÷ " + contender_);
  }
  std::string text(double value) const {
    if (!against_dense_) return human(value, metric_.unit);
    return is_time_ratio() ? time_ratio(value) : memory_ratio(value);
  }
  HeatCell cell(const Point& point) const {
    const Measurement* measurement = point.find(contender_);
    if (!measurement) return {std::nullopt, "–", contender_ + " was not measured"};
    const std::string note = say(*measurement, metric_);
    if (!measurement->ok()) return {std::nullopt, "failed", note};
    double value = metric_.value(*measurement);
    if (against_dense_) {
      const Measurement* dense = point.find_ok(kDense);
      if (!dense) return {std::nullopt, "–", note + ", but there is no dense to divide by"};
      value = is_time_ratio() ? value / metric_.value(*dense) : metric_.value(*dense) / value;
    }
    // 0 ÷ 0 has no colour and no meaning.
    if (std::isnan(value)) return {std::nullopt, "–", note};
    return {value, text(value), note};
  }

 private:
  Metric metric_;
  std::string contender_;
  bool against_dense_;
};

HeatMap heat_map(const Run& run, const Slice& slice, size_t row_key, size_t column_key, const CellValue& value) {
  const SweptKey &rows = run.sweep[row_key], &columns = run.sweep[column_key];
  HeatMap map{value.title(),        slice.title, rows.key, columns.key, rows.values, columns.values, {}, 1, 1, "", "",
              value.is_time_ratio()};
  for (const std::string& row : rows.values) {
    for (const std::string& column : columns.values) {
      const auto is_here = [&](const Point* p) { return p->at[row_key] == row && p->at[column_key] == column; };
      const auto point = std::find_if(slice.points.begin(), slice.points.end(), is_here);
      map.cells.push_back(point != slice.points.end() ? value.cell(**point)
                                                      : HeatCell{std::nullopt, "", "not measured"});
      map.cells.back().note += " at " + rows.key + " = " + row + ", " + columns.key + " = " + column;
    }
  }
  return map;
}

// One scale of colours for all maps of a contender, so that they can be held against each other.
void share_scale(std::vector<HeatMap>& maps, const CellValue& value) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const HeatMap& map : maps) {
    for (const HeatCell& cell : map.cells) {
      if (!cell.value || !(*cell.value > 0) || std::isinf(*cell.value)) continue;
      low = std::min(low, *cell.value);
      high = std::max(high, *cell.value);
    }
  }
  if (high == 0) low = high = 1;
  if (value.is_time_ratio()) {
    high = std::max({high, 1 / low, 1.05});  // Below 5 % a difference is noise and stays pale.
    low = 1 / high;
  }
  for (HeatMap& map : maps) {
    map.low = low;
    map.high = high;
    map.low_text = value.text(low);
    map.high_text = value.text(high);
  }
}

Chapter heat_chapter(const Run& run, size_t row_key, size_t column_key) {
  const std::vector<const Point*> points = all_points(run);
  Chapter chapter{
      "The sweep: " + run.sweep[row_key].key + " × " + run.sweep[column_key].key, caption_of(points), false, {}};
  const std::vector<Slice> slices = cut(run, {row_key, column_key});
  const std::vector<std::string> contenders = contenders_in(run, points);
  const bool against_dense = std::find(contenders.begin(), contenders.end(), kDense) != contenders.end();
  for (const std::string& contender : contenders) {
    if (contender == kDense && contenders.size() > 1) continue;
    std::vector<std::vector<HeatMap>> by_metric;
    for (const Metric& metric : kMetrics) {
      const CellValue value(metric, contender, against_dense && contender != kDense);
      std::vector<HeatMap>& maps = by_metric.emplace_back();
      for (const Slice& slice : slices) maps.push_back(heat_map(run, slice, row_key, column_key, value));
      share_scale(maps, value);
    }
    for (size_t slice = 0; slice < slices.size(); ++slice) {
      for (const std::vector<HeatMap>& maps : by_metric) chapter.panels.push_back(draw(maps[slice]));
    }
  }
  return chapter;
}

BarChart bar_chart(const Run& run, const Slice& slice, const Metric& metric) {
  const Point& point = *slice.points.front();
  BarChart chart{metric.title, slice.title, {}};
  for (const std::string& name : contenders_in(run, slice.points)) {
    const Measurement& measurement = *point.find(name);
    const double value = metric.value(measurement);
    chart.bars.push_back({name, value, metric.spread(measurement),
                          measurement.ok() ? human(value, metric.unit) : "failed", !measurement.ok()});
  }
  return chart;
}

Chapter bar_chapter(const Run& run) {
  Chapter chapter{"Memory and time", caption_of(all_points(run)), false, {}};
  for (const Slice& slice : cut(run, {})) {
    for (const Metric& metric : kMetrics) chapter.panels.push_back(draw(bar_chart(run, slice, metric)));
  }
  return chapter;
}

}  // namespace

std::string say(const Measurement& measurement, const Metric& metric) {
  if (!measurement.ok()) return measurement.contender + " failed: " + measurement.error;
  const double spread = metric.spread(measurement);
  return measurement.contender + ": " + human(metric.value(measurement), metric.unit) +
         (spread > 0 ? " ± " + human(spread, metric.unit) : "");
}

std::string common_shape(const std::vector<const Point*>& points) {
  const Shape& first = points.front()->shape;
  std::string text;
  const auto add = [&](auto member, const std::string& words) {
    const auto same = [&](const Point* point) { return point->shape.*member == first.*member; };
    if (std::all_of(points.begin(), points.end(), same)) text += (text.empty() ? "" : ", ") + words;
  };
  add(&Shape::tokens, grouped(first.tokens) + " tokens");
  add(&Shape::vocab, grouped(first.vocab) + " vocabulary entries");
  add(&Shape::hidden, "hidden size " + grouped(first.hidden));
  add(&Shape::dtype, first.dtype);
  add(&Shape::layout, first.layout);
  return text;
}

std::vector<Chapter> chapters(const Run& run) {
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
