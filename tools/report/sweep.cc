// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "report/scale.h"

namespace logitless::report {
namespace {

using Places = std::vector<size_t>;  // Indices of a point's values in SweptKey::values.

bool is_in(const std::vector<size_t>& list, size_t key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

size_t place_of(const SweptKey& swept, const std::string& value) {
  return static_cast<size_t>(std::find(swept.values.begin(), swept.values.end(), value) - swept.values.begin());
}

std::string without_section(const std::string& key) { return key.substr(key.rfind('.') + 1); }

bool begins_with_digit(const std::string& text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

}  // namespace

std::optional<double> number_in(const std::string& value) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, status] = std::from_chars(value.data(), end, number);
  if (status != std::errc() || rest != end) return std::nullopt;
  const double size = std::abs(number);
  return number == 0 || (size >= kLeastSize && size <= kMostSize) ? std::optional(number) : std::nullopt;
}

std::string short_key(const BenchRun& run, size_t key) {
  const std::string name = without_section(run.sweep[key].key);
  const auto alike = std::count_if(run.sweep.begin(), run.sweep.end(),
                                   [&](const SweptKey& swept) { return without_section(swept.key) == name; });
  return alike == 1 ? name : run.sweep[key].key;
}

VaryingKeys varying_keys(const BenchRun& run) {
  VaryingKeys keys;
  for (size_t key = 0; key < run.sweep.size(); ++key) {
    const std::vector<std::string>& values = run.sweep[key].values;
    if (values.size() < 2) continue;
    const bool is_axis = std::count_if(values.begin(), values.end(), begins_with_digit) >= 2;
    (is_axis ? keys.axes : keys.facets).push_back(key);
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
      title += (title.empty() ? "" : ", ") + short_key(run, key) + " = " + point.at[key];
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

}  // namespace logitless::report
