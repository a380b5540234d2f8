// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "report/units.h"

namespace logitless::report {
namespace {

using Places = std::vector<size_t>;  // Indices of a point's values in SweptKey::values.

bool is_in(const std::vector<size_t>& list, size_t key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

size_t place_of(const SweptKey& swept, const std::string& value) {
  return static_cast<size_t>(std::find(swept.values.begin(), swept.values.end(), value) - swept.values.begin());
}

bool begins_with_digit(const std::string& text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

// The value of a key as a number, where all of it is one and its size can be drawn.
std::optional<double> number_in(const std::string& value) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  const double size = std::abs(number);
  return number == 0 || (size >= kLeastSize && size <= kMostSize) ? std::optional(number) : std::nullopt;
}

// The keys that change a size of the shape.
struct ShapeKey {
  const char* key;
  const char* label;
  int64_t Shape::*size;
};

constexpr ShapeKey kShapeKeys[] = {{"seq_len", "tokens", &Shape::tokens},
                                   {"batch_size", "tokens", &Shape::tokens},
                                   {"model.vocab_size", "vocabulary entries", &Shape::vocab},
                                   {"model.hidden_size", "hidden size", &Shape::hidden}};

}  // namespace

std::vector<size_t> axis_keys(const BenchRun& run) {
  std::vector<size_t> keys;
  for (size_t key = 0; key < run.sweep.size(); ++key) {
    const std::vector<std::string>& values = run.sweep[key].values;
    if (std::count_if(values.begin(), values.end(), begins_with_digit) >= 2) keys.push_back(key);
  }
  return keys;
}

std::vector<Slice> cut(const BenchRun& run, const std::vector<size_t>& drawn, const std::vector<size_t>& held) {
  // Rivals stand side by side under the values of the keys that are not held.
  std::map<Places, std::map<Places, Slice>> rivals;
  for (const Point& point : run.points) {
    Places kept, rival;
    std::string title;
    for (size_t key = 0; key < run.sweep.size(); ++key) {
      if (run.sweep[key].values.size() < 2 || is_in(drawn, key)) continue;
      (is_in(held, key) ? rival : kept).push_back(place_of(run.sweep[key], point.at[key]));
      title += (title.empty() ? "" : ", ") + run.sweep[key].key + " = " + point.at[key];
    }
    Slice& slice = rivals[kept][rival];
    slice.title = title;
    slice.points.push_back(&point);
  }
  std::vector<Slice> slices;
  for (auto& [kept, candidates] : rivals) {
    const auto fuller_later = [](const auto& a, const auto& b) {
      return std::pair(a.second.points.size(), a.first) < std::pair(b.second.points.size(), b.first);
    };
    slices.push_back(std::max_element(candidates.begin(), candidates.end(), fuller_later)->second);
  }
  return slices;
}

Axis::Axis(const BenchRun& run, size_t key) : swept_(run.sweep[key]), key_(key), label_(swept_.key) {
  for (const ShapeKey& shape : kShapeKeys) {
    if (swept_.key != shape.key) continue;
    size_ = shape.size;
    label_ = shape.label;
  }
  const auto is_number = [](const std::string& value) { return number_in(value).has_value(); };
  ordinal_ = !size_ && !std::all_of(swept_.values.begin(), swept_.values.end(), is_number);
}

Tick Axis::tick(const Point& point) const {
  const std::string& value = point.at[key_];
  if (size_) return {static_cast<double>(point.shape.*size_), grouped(point.shape.*size_)};
  return {ordinal_ ? static_cast<double>(place_of(swept_, value)) : *number_in(value), value};
}

std::string common_shape(const std::vector<const Point*>& points) {
  const Shape& shape = points.front()->shape;
  std::string text;
  const auto add = [&](auto member, const std::string& words) {
    const auto same = [&](const Point* other) { return other->shape.*member == shape.*member; };
    if (std::all_of(points.begin(), points.end(), same)) text += (text.empty() ? "" : ", ") + words;
  };
  add(&Shape::tokens, grouped(shape.tokens) + " tokens");
  add(&Shape::vocab, grouped(shape.vocab) + " vocabulary entries");
  add(&Shape::hidden, "hidden size " + grouped(shape.hidden));
  add(&Shape::dtype, shape.dtype);
  add(&Shape::layout, shape.layout);
  return text;
}

}  // namespace logitless::report
