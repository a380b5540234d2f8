// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/config_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "io/config.h"
#include "io/error.h"

namespace logitless::io {
namespace {

// yaml-cpp tags a quoted scalar "!": it is meant as text, neither a number nor true or false.
bool is_plain(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

template <class T>
std::optional<T> parse_whole(const std::string& text) {
  T value{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (text.starts_with('+') && !text.starts_with("+-")) ++begin;
  const auto [rest, status] = std::from_chars(begin, end, value);
  if (status != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::string shown(const YAML::Node& node) {
  if (node.IsMap()) return "a section of keys";
  if (node.IsSequence()) return "a list";
  if (!node.IsScalar()) return "nothing";
  const std::string text = one_line(node.Scalar(), 60);
  return node.Tag() == "!" ? "the text \"" + text + "\"" : text.empty() ? "an empty text" : text;
}

}  // namespace

void ConfigValue::reject(const std::string& rule) const {
  // A place from --set already names its key.
  const std::string where = place.ends_with(" " + key) ? place : place + ": " + key;
  throw Error(where + " must be " + rule + ", not " + shown(node));
}

std::string read_text(const ConfigValue& value) {
  if (!value.node.IsScalar()) value.reject("text");
  return value.node.Scalar();
}

bool is_bool(const ConfigValue& value) {
  return is_plain(value.node) && (value.node.Scalar() == "true" || value.node.Scalar() == "false");
}

bool read_bool(const ConfigValue& value) {
  if (!is_bool(value)) value.reject("true or false");
  return value.node.Scalar() == "true";
}

int64_t read_integer(const ConfigValue& value, int64_t low, int64_t high) {
  std::optional<int64_t> number;
  if (is_plain(value.node)) number = parse_whole<int64_t>(value.node.Scalar());
  if (number && *number >= low && *number <= high) return *number;
  std::string rule = "an integer";
  const bool lower = low != std::numeric_limits<int64_t>::min(), upper = high != std::numeric_limits<int64_t>::max();
  if (lower && upper) rule += " from " + std::to_string(low) + " to " + std::to_string(high);
  if (lower && !upper) rule += " of at least " + std::to_string(low);
  value.reject(rule);
}

double read_number(const ConfigValue& value, const Interval& interval) {
  std::optional<double> number;
  if (is_plain(value.node)) number = parse_whole<double>(value.node.Scalar());
  if (!number || !interval.holds(*number)) value.reject(interval.text);
  return *number;
}

size_t read_bytes(const ConfigValue& value) {
  static const std::vector<std::pair<std::string, double>> kUnits = {
      {"", 1},         {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"TB", 1e12}};
  const std::string rule = "auto or a size above 0 such as 256MiB or 1.5GiB";
  if (!is_plain(value.node)) value.reject(rule);
  const std::string& text = value.node.Scalar();
  const size_t digits = std::min(text.find_first_not_of("0123456789.eE+"), text.size());
  const size_t unit_begin = std::min(text.find_first_not_of(' ', digits), text.size());
  const std::string unit = text.substr(unit_begin);
  const auto number = parse_whole<double>(text.substr(0, digits));
  const auto it = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& entry) { return entry.first == unit; });
  if (!number || it == kUnits.end()) value.reject(rule);
  const double bytes = std::floor(*number * it->second);
  if (!(bytes >= 1 && bytes <= 0x1p62)) value.reject(rule);
  return static_cast<size_t>(bytes);
}

bool is_auto(const ConfigValue& value) { return is_plain(value.node) && value.node.Scalar() == "auto"; }

std::string join_choices(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace logitless::io
