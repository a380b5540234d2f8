// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/units.h"

#include <array>
#include <charconv>
#include <cmath>

namespace logitless::cli {

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  std::array<char, 400> text;  // The longest double has 309 digits before the point.
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
  return std::string(text.data(), end);
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; unit < 4 && value >= 1024; ++unit) value /= 1024;
  return fixed(value, unit == 0 ? 0 : unit < 3 ? 1 : 2) + kUnits[unit];
}

std::string human_seconds(double seconds) {
  // The limits are those at which three digits round up to the next unit.
  const auto [size, unit] = seconds < 0.9995e-3 ? std::pair(1e-6, " µs")
                            : seconds < 0.9995  ? std::pair(1e-3, " ms")
                                                : std::pair(1.0, " s");
  const double value = seconds / size;
  return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + unit;
}

std::string time_ratio(double ratio) { return fixed(ratio, ratio < 0.095 ? 3 : 2) + "×"; }

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace logitless::cli
