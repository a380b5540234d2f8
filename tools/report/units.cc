// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

namespace logitless::report {
namespace {

struct Magnitude {
  const char* name;
  double size;
  int digits = 0;  // After the point.
};

const Magnitude& magnitude_of_bytes(double bytes) {
  static constexpr Magnitude magnitudes[] = {
      {"B", 1, 0}, {"KiB", 0x1p10, 1}, {"MiB", 0x1p20, 1}, {"GiB", 0x1p30, 2}, {"TiB", 0x1p40, 2}};
  size_t i = 0;
  while (i + 1 < std::size(magnitudes) && bytes >= magnitudes[i + 1].size) ++i;
  return magnitudes[i];
}

const Magnitude& magnitude_of_seconds(double seconds) {
  // The limits are those at which three digits round up to the next unit.
  static constexpr Magnitude magnitudes[] = {{"µs", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return magnitudes[seconds < 0.9995e-3 ? 0 : seconds < 0.9995 ? 1 : 2];
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
  const Magnitude& magnitude = magnitude_of_bytes(static_cast<double>(bytes));
  return fixed(static_cast<double>(bytes) / magnitude.size, magnitude.digits) + " " + magnitude.name;
}

std::string human_seconds(double seconds) {
  const Magnitude& magnitude = magnitude_of_seconds(seconds);
  return three_digits(seconds / magnitude.size) + " " + magnitude.name;
}

std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t end = text.size(); end > (value < 0 ? 4u : 3u); end -= 3) text.insert(end - 3, 1, ',');
  return text;
}

std::string memory_ratio(double ratio) {
  if (ratio >= 1000 && ratio < 1e15) return grouped(std::llround(ratio)) + "×";
  return fixed(ratio, ratio < 0.95 ? 2 : ratio < 9.95 ? 1 : 0) + "×";
}

std::string time_ratio(double ratio) { return fixed(ratio, ratio < 0.095 ? 3 : 2) + "×"; }

std::string tick_label(double value, Unit unit, double reference) {
  if (unit == Unit::kNone) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? grouped(static_cast<int64_t>(value))
                                                                : trimmed(value, 6);
  }
  if (value == 0) return "0";
  if (unit == Unit::kMemoryRatio || unit == Unit::kTimeRatio) return trimmed(value, 3) + "×";
  const Magnitude& magnitude = unit == Unit::kBytes ? magnitude_of_bytes(reference) : magnitude_of_seconds(reference);
  return trimmed(value / magnitude.size, 3) + " " + magnitude.name;
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
