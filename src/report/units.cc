// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

namespace logitless::report {
namespace {

struct Scaled {
  double value;
  const char* unit;
  size_t step;  ///< 0: bytes, 1: KiB, ...
};

Scaled scale_bytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t step = 0;
  while (bytes >= 1024 && step + 1 < std::size(units)) {
    bytes /= 1024;
    ++step;
  }
  return {bytes, units[step], step};
}

Scaled scale_seconds(double seconds) {
  // The limits are those at which three digits round up to the next unit.
  if (seconds < 0.9995e-3) return {seconds * 1e6, "µs", 0};
  if (seconds < 0.9995) return {seconds * 1e3, "ms", 0};
  return {seconds, "s", 0};
}

std::string three_digits(double value) { return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

}  // namespace

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  std::array<char, 400> text;  // The longest double has 309 digits before the point.
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return std::string(text.data(), end);
}

std::string trimmed(double value, int digits) {
  std::string text = fixed(value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string human_bytes(int64_t bytes) {
  const auto [value, unit, step] = scale_bytes(static_cast<double>(bytes));
  return fixed(value, step == 0 ? 0 : step < 3 ? 1 : 2) + " " + unit;
}

std::string human_seconds(double seconds) {
  const Scaled scaled = scale_seconds(seconds);
  return three_digits(scaled.value) + " " + scaled.unit;
}

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t end = text.size(); end > (value < 0 ? 4u : 3u); end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string memory_ratio(double ratio) { return fixed(ratio, ratio < 0.995 ? 2 : ratio < 9.95 ? 1 : 0) + "×"; }

std::string time_ratio(double ratio) { return fixed(ratio, 2) + "×"; }

std::string tick_label(double value, Unit unit) {
  if (unit == Unit::kNone) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? grouped(static_cast<int64_t>(value))
                                                                : trimmed(value, 6);
  }
  if (value == 0) return "0";
  if (unit == Unit::kMemoryRatio || unit == Unit::kTimeRatio) return trimmed(value, 3) + "×";
  const Scaled scaled = unit == Unit::kBytes ? scale_bytes(value) : scale_seconds(value);
  return trimmed(scaled.value, 3) + " " + scaled.unit;
}

std::string human(double value, Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return human_bytes(static_cast<int64_t>(value));
    case Unit::kSeconds:
      return human_seconds(value);
    case Unit::kMemoryRatio:
      return memory_ratio(value);
    case Unit::kTimeRatio:
      return time_ratio(value);
    case Unit::kNone:
      break;
  }
  return trimmed(value, 3);
}

}  // namespace logitless::report
