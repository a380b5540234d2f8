// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The YAML value of one key, and strict readers for it. Each throws Error that names place, key and rule.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/fields.h"
#include "io/config.h"

namespace logitless::io {

struct ConfigValue {
  std::string key;    ///< dotted: "model.dtype"
  std::string place;  ///< "qwen.yaml:7", or "--set model.dtype"
  YAML::Node node;

  /// Throws Error: "<place>: <key> must be <rule>, not <value>".
  [[noreturn]] void reject(const std::string& rule) const;
};

std::string read_text(const ConfigValue& value);
/// Returns true if the value is `true` or `false`.
bool is_bool(const ConfigValue& value);
bool read_bool(const ConfigValue& value);
int64_t read_integer(const ConfigValue& value, int64_t low, int64_t high);
double read_number(const ConfigValue& value, const Interval& interval);
/// Reads "256MiB", "1.5 GiB" or "1000000" as bytes, for a key that also takes `auto`.
size_t read_bytes(const ConfigValue& value);
/// Returns true if the value is the bare word `auto`.
bool is_auto(const ConfigValue& value);

/// "a", "a or b", "a, b or c"
std::string join_choices(const std::vector<std::string>& names);

template <class T>
T read_choice(const ConfigValue& value, const std::vector<std::pair<std::string, T>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    if (value.node.IsScalar() && value.node.Scalar() == name) return choice;
    names.push_back(name);
  }
  value.reject(join_choices(names));
}

/// Reads one of `values` by its name.
template <class T, class Values = std::initializer_list<T>>
T read_named(const ConfigValue& value, const Values& values) {
  std::vector<std::pair<std::string, T>> choices;
  for (const T choice : values) choices.emplace_back(name_of(choice), choice);
  return read_choice(value, choices);
}
/// A rule of the schema: a key, and how its value is applied. The same table serves files and --set.
struct KeyRule {
  std::string key;  ///< dotted
  std::function<void(Config&, const ConfigValue&)> apply;
};

const std::vector<KeyRule>& config_schema();

/// Returns true for the name of a section, such as `model`.
bool is_section(const std::string& name);

/// Returns "; did you mean model.dtype?" with the name that is closest to `word`, or "" if none is close.
std::string suggestion_among(const std::vector<std::string>& names, const std::string& word);

}  // namespace logitless::io
