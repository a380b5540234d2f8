// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which charts a run gets.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "report/page.h"
#include "report/units.h"

namespace logitless::report {
namespace {

using Json = nlohmann::ordered_json;
using Points = std::vector<const Point*>;

constexpr double kLogSpanX = 3;  // Sweeps double or quadruple as a rule: their logarithm spaces them evenly.
constexpr double kLogSpanY = 10;
constexpr size_t kMostRows = 24;  // Many more take a browser seconds, and nobody looks through them.

// The value of a key as a number, where all of it is one and its size can be drawn.
std::optional<double> number_in(const std::string& value) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  const double size = std::abs(number);
  return number == 0 || (size >= kLeastSize && size <= kMostSize) ? std::optional(number) : std::nullopt;
}

size_t place_of(const SweptKey& swept, const std::string& value) {
  return static_cast<size_t>(std::find(swept.values.begin(), swept.values.end(), value) - swept.values.begin());
}

// Where points lie along a swept key: at the size of the shape that the key changes, at its values where all
// of them are numbers, else one place after the other. Without a key all lie in one place.
class Axis {
 public:
  Axis(const BenchRun& run, std::optional<size_t> key) : key_(key) {
    if (!key) return;
    swept_ = &run.sweep[*key];
    label = swept_->key;
    const std::vector<std::string>& values = swept_->values;
    for (const auto& [name, words, member] :
         {std::tuple("seq_len", "tokens", &Shape::tokens), std::tuple("batch_size", "tokens", &Shape::tokens),
          std::tuple("model.vocab_size", "vocabulary entries", &Shape::vocab),
          std::tuple("model.hidden_size", "hidden size", &Shape::hidden)}) {
      if (swept_->key != name) continue;
      size_ = member;
      label = words;
    }
    is_number_ = std::all_of(values.begin(), values.end(), [](const auto& v) { return number_in(v).has_value(); });
    // "auto, 512, 1024" is a scale too, but names are none.
    joined = 2 <= std::count_if(values.begin(), values.end(), [](const auto& v) { return '0' <= v[0] && v[0] <= '9'; });
  }

  std::string label;
  bool joined = false;  // by lines

  bool has_sizes() const { return size_ || is_number_; }
  double x(const Point& point) const {
    if (size_) return static_cast<double>(point.shape.*size_);
    if (!key_) return 0;
    const std::string& value = point.at[*key_];
    return is_number_ ? *number_in(value) : static_cast<double>(place_of(*swept_, value));
  }
  std::string tick(const Point& point) const {
    return size_ ? grouped(point.shape.*size_) : key_ ? point.at[*key_] : "";
  }

 private:
  std::optional<size_t> key_;
  const SweptKey* swept_ = nullptr;
  int64_t Shape::*size_ = nullptr;
  bool is_number_ = false;
};

// Points that differ in the key of an axis alone, in its order.
struct Slice {
  std::string title;  // "model.dtype = float32, seq_len = 512": the keys that other slices vary
  Points points;
};

// In the order of the other keys' values.
std::vector<Slice> cut(const BenchRun& run, std::optional<size_t> key, const Axis& along) {
  std::map<std::vector<size_t>, Slice> slices;
  for (const Point& point : run.points) {
    std::vector<size_t> places;
    std::string title;
    for (size_t other = 0; other < run.sweep.size(); ++other) {
      if (run.sweep[other].values.size() < 2 || other == key) continue;
      places.push_back(place_of(run.sweep[other], point.at[other]));
      title += (title.empty() ? "" : ", ") + run.sweep[other].key + " = " + point.at[other];
    }
    Slice& slice = slices[places];
    slice.title = title;
    slice.points.push_back(&point);
  }
  std::vector<Slice> list;
  for (auto& [places, slice] : slices) {
    std::stable_sort(slice.points.begin(), slice.points.end(),
                     [&](const Point* a, const Point* b) { return along.x(*a) < along.x(*b); });
    list.push_back(std::move(slice));
  }
  return list;
}

std::string title_of(Unit unit) {
  if (unit == Unit::kBytes) return "Extra peak memory";
  return unit == Unit::kSeconds ? "Time of one call" : "Time ÷ time of dense";
}

// A contender at a point: its note is "one_pass: 7.64 s ± 1.2 % at 1,024 tokens".
Json mark_of(const Point& point, const Measurement& m, const Axis& along, Unit unit) {
  const double value = value_of(point, m, unit), spread = spread_of(point, m, unit);
  std::string note = m.ok() ? m.contender + ": " + text_of(point, m, unit) : m.contender + " failed: " + m.error;
  if (spread > 0) note += " " + spread_text(value, spread);
  if (!along.label.empty()) note += " at " + along.tick(point) + " " + along.label;
  return {{"x", along.x(point)}, {"value", value}, {"spread", spread}, {"note", note}, {"failed", !m.ok()}};
}

Json marks_of(const std::string& contender, const Slice& slice, const Axis& along, Unit unit) {
  Json marks = Json::array();
  for (const Point* point : slice.points) {
    const Measurement* m = point->find(contender);
    if (m && (!m->ok() || std::isfinite(value_of(*point, *m, unit)))) marks.push_back(mark_of(*point, *m, along, unit));
  }
  return marks;
}

Json ticks_of(const Axis& along, const Slice& slice) {
  const double low = along.x(*slice.points.front()), high = along.x(*slice.points.back());
  Json ticks = Json::array();
  for (const Point* point : slice.points) ticks.push_back(Json::array({along.x(*point), along.tick(*point)}));
  return {{"label", along.label},
          {"log", along.has_sizes() && low > 0 && high > low * kLogSpanX},
          {"joined", along.joined},
          {"ticks", ticks}};
}

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

Json chart(const BenchRun& run, const Slice& slice, const Axis& along, Unit unit, const Range& range) {
  Json series = Json::array();
  std::string description;
  bool has_zero = false;
  for (const std::string& name : run.contenders) {
    const auto took_part = [&](const Point* point) { return point->find(name) != nullptr; };
    if (std::none_of(slice.points.begin(), slice.points.end(), took_part)) continue;
    series.push_back({{"name", name}, {"marks", marks_of(name, slice, along, unit)}});
    for (const Json& mark : series.back()["marks"]) {
      description += (description.empty() ? "" : "; ") + mark["note"].get<std::string>();
      has_zero = has_zero || (!mark["failed"] && mark["value"] == 0);
    }
  }
  const bool log = range.high > range.low * kLogSpanY;
  const auto [size, suffix] = magnitude(log ? std::sqrt(range.low * range.high) : range.high, unit);
  std::string subtitle = slice.title;
  if (log) subtitle += std::string(subtitle.empty() ? "" : ", ") + "log scale" + (has_zero ? ", 0 at its foot" : "");
  return {{"title", title_of(unit)},
          {"subtitle", subtitle},
          {"description", description + "."},
          {"unit", {{"size", size}, {"suffix", suffix}}},
          {"log", log},
          {"range", {log ? range.low : 0, range.high > 0 ? range.high : 1}},
          {"x", ticks_of(along, slice)},
          {"series", std::move(series)}};
}

Json chapter(const BenchRun& run, std::optional<size_t> key) {
  const Axis along(run, key);
  std::vector<Slice> slices = cut(run, key, along);
  std::string caption;
  if (slices.size() > kMostRows) {
    caption = "Of " + std::to_string(slices.size()) + " combinations of the other keys the first " +
              std::to_string(kMostRows) + " are drawn; the table holds all";
    slices.resize(kMostRows);
  }
  Points points;
  for (const Slice& slice : slices) points.insert(points.end(), slice.points.begin(), slice.points.end());
  const auto any = [&](const auto& holds) { return std::any_of(points.begin(), points.end(), holds); };
  std::vector<Unit> units = {Unit::kBytes, Unit::kSeconds};
  if (key && any([](const Point* point) { return point->has_quotients(); })) units.push_back(Unit::kTimeRatio);
  Json rows(slices.size(), {{"charts", Json::array()}});
  for (const Unit unit : units) {
    Range range;
    for (const Point* point : points) {
      for (const Measurement& m : point->measurements) {
        range.include(value_of(*point, m, unit));
        range.include(value_of(*point, m, unit) + spread_of(*point, m, unit));
      }
    }
    for (size_t i = 0; i < slices.size(); ++i) rows[i]["charts"].push_back(chart(run, slices[i], along, unit, range));
  }
  const auto add_sentence = [&](const std::string& text) {
    if (!text.empty()) caption += (caption.empty() ? "" : ". ") + text;
  };
  add_sentence(common_shape(points));
  if (any([](const Point* point) { return point->find(kForward); })) {
    add_sentence("forward computes the loss alone, without gradients");
  }
  return {{"heading", key ? "Against " + along.label : "Memory and time"},
          {"caption", caption + (caption.empty() ? "" : ".")},
          {"rows", std::move(rows)}};
}

}  // namespace

Json chapters(const BenchRun& run) {
  Json of_numbers = Json::array(), of_names = Json::array();
  for (size_t key = 0; key < run.sweep.size(); ++key) {
    if (run.sweep[key].values.size() < 2) continue;
    (Axis(run, key).joined ? of_numbers : of_names).push_back(chapter(run, key));
  }
  if (!of_numbers.empty()) return of_numbers;
  return of_names.empty() ? Json::array({chapter(run, std::nullopt)}) : of_names;
}

}  // namespace logitless::report
