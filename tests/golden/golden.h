// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads files of golden values.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/fields.h"

namespace logitless::testing {

using nlohmann::json;

/// A file of golden values.
struct Golden {
  json inputs;
  std::map<std::string, json> cases;

  explicit Golden(const std::string& name) {
    std::ifstream file(GOLDEN_FOLDER "/" + name);
    const json all = json::parse(file);
    inputs = all.at("inputs");
    for (const json& c : all.at("cases")) cases[c.at("name").get<std::string>()] = c;
  }
};

/// Returns the numbers of nested arrays as one vector; null is NaN.
template <class T = double>
std::vector<T> flat(const json& value) {
  if (!value.is_array()) return {value.is_null() ? std::numeric_limits<T>::quiet_NaN() : value.get<T>()};
  std::vector<T> out;
  for (const json& element : value) {
    const std::vector<T> more = flat<T>(element);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

/// Sets an option to a value from the file.
template <class T>
void assign(T& to, const json& value) {
  if constexpr (Named<T>) {
    to = named<T>(value.get<std::string>()).value();
  } else {
    to = value.get<T>();
  }
}
template <class T>
void assign(std::optional<T>& to, const json& value) {
  to.reset();
  if (!value.is_null()) assign(to.emplace(), value);
}
template <class T>
void assign(std::vector<T>& to, const json& value) {
  to.clear();
  for (const json& one : value) assign(to.emplace_back(), one);
}

/// Returns the task with the options of a case.
template <class Task>
Task read_options(const json& values) {
  Task task;
  for (const auto& [name, value] : values.items()) {
    bool found = false;
    const auto set = [&, &name = name, &value = value](const Field& field, auto& to) {
      if constexpr (
          requires { assign(to, value); } && !requires { to.size_bytes(); }) {
        if (name != field.name) return;
        assign(to, value);
        found = true;
      }
    };
    visit_flat(FieldsOf<Task>(), set, task);
    if (!found) throw std::invalid_argument("no such option: " + name);
  }
  return task;
}

/// Expects numbers within `relative` of the largest number. An expected NaN matches anything.
inline void expect_all_near(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                            double relative, double floor = 0) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double value : want) largest = std::fmax(largest, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) continue;
    EXPECT_TRUE(std::abs(got[i] - want[i]) <= relative * largest + floor)
        << what << "[" << i << "] is " << got[i] << ", not " << want[i];
  }
}

}  // namespace logitless::testing
