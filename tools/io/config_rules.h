// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Words to write the schema with: a rule joins a key, the member it fills and how its value is read.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/config.h"
#include "io/config_schema.h"
#include "io/config_value.h"

namespace logitless::io {

inline constexpr int64_t kAnyLow = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kAnyHigh = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kMaxSize = int64_t{1} << 40;  // Far above any real tensor; keeps products of sizes countable.

inline const Interval kPositive{.low = 0, .open_low = true, .text = "a finite number above 0"};
inline const Interval kNotNegative{.low = 0, .text = "a finite number of at least 0"};
inline const Interval kShare{.low = 0, .high = 1, .text = "a number from 0 to 1"};
inline const Interval kFinite{.text = "a finite number"};
inline const Interval kPositiveShare{.low = 0, .high = 1, .open_low = true, .text = "a number above 0 and up to 1"};

/// The member of a member: path(&Config::model, &ModelConfig::dtype).
auto path(auto... members) {
  return [=](Config & config) -> auto& { return (config.*....*members); };
}

/// A rule that stores what `read` makes of the value in a member, or in what a path leads to.
template <class Member, class Read>
KeyRule rule(std::string key, Member member, Read read) {
  return {std::move(key), [=](Config& config, const ConfigValue& value) { std::invoke(member, config) = read(value); }};
}

inline auto integer(int64_t low, int64_t high = kAnyHigh) {
  return [=](const ConfigValue& value) { return read_integer(value, low, high); };
}

inline auto number(const Interval& interval) {
  return [=](const ConfigValue& value) { return read_number(value, interval); };
}

template <class T>
auto choice(std::vector<std::pair<std::string, T>> choices) {
  return [=](const ConfigValue& value) { return read_choice<T>(value, choices); };
}

template <class Read>
auto auto_or(Read read) {
  return [=](const ConfigValue& value) -> int64_t { return is_auto(value) ? 0 : read(value); };
}

/// The bare word `none`, or a value.
template <class Read>
auto none_or(Read read) {
  return [=](const ConfigValue& value) -> std::optional<decltype(read(value))> {
    if (value.node.IsScalar() && value.node.Scalar() == "none") return std::nullopt;
    return read(value);
  };
}

/// One of `values`, by the library's own names.
template <class T, class Values>
auto named(const Values& values) {
  std::vector<std::pair<std::string, T>> choices;
  for (const T value : values) choices.emplace_back(name_of(value), value);
  return choice<T>(std::move(choices));
}

/// policy:, preference: and kto:
void add_policy_rules(std::vector<KeyRule>& rules);
void add_preference_rules(std::vector<KeyRule>& rules);

}  // namespace logitless::io
