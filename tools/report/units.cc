// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace logitless::report {
namespace {

Magnitude magnitude_of_bytes(double bytes) {
  constexpr Magnitude magnitudes[] = {
      {1, " B"}, {0x1p10, " KiB"}, {0x1p20, " MiB"}, {0x1p30, " GiB"}, {0x1p40, " TiB"}};
  size_t i = 0;
  while (i + 1 < std::size(magnitudes) && bytes >= magnitudes[i + 1].size) ++i;
  return magnitudes[i];
}

Magnitude magnitude_of_seconds(double seconds) {
  // The limits are those at which three digits round up to the next unit.
  constexpr Magnitude magnitudes[] = {{1e-6, " µs"}, {1e-3, " ms"}, {1, " s"}};
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
  const Magnitude magnitude = magnitude_of_bytes(static_cast<double>(bytes));
  const int digits = magnitude.size < 0x1p10 ? 0 : magnitude.size < 0x1p30 ? 1 : 2;
  return fixed(static_cast<double>(bytes) / magnitude.size, digits) + magnitude.suffix;
}

std::string human_seconds(double seconds) {
  const Magnitude magnitude = magnitude_of_seconds(seconds);
  return three_digits(seconds / magnitude.size) + magnitude.suffix;
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

Magnitude magnitude(double value, Unit unit) {
  switch (unit) {
    case Unit::kBytes:
      return magnitude_of_bytes(value);
    case Unit::kSeconds:
      return magnitude_of_seconds(value);
    default:
      return {1, "×"};
  }
}

double value_of(const Point& point, const Measurement& m, Unit unit) {
  const Measurement* dense = point.find_ok(kDense);
  const bool is_quotient = unit == Unit::kMemoryRatio || unit == Unit::kTimeRatio;
  if (!m.ok() || (is_quotient && !dense)) return std::numeric_limits<double>::quiet_NaN();
  const auto peak = static_cast<double>(m.extra_peak_bytes);
  switch (unit) {
    case Unit::kBytes:
      return peak;
    case Unit::kSeconds:
      return m.median_s;
    case Unit::kMemoryRatio:
      return static_cast<double>(dense->extra_peak_bytes) / peak;
    case Unit::kTimeRatio:
      return m.median_s / dense->median_s;
  }
  return 0;
}

std::string text_of(const Point& point, const Measurement& m, Unit unit) {
  const double value = value_of(point, m, unit);
  if (!std::isfinite(value)) return "–";
  switch (unit) {
    case Unit::kBytes:
      return human_bytes(static_cast<int64_t>(value));
    case Unit::kSeconds:
      return human_seconds(value);
    case Unit::kMemoryRatio:
      return memory_ratio(value);
    case Unit::kTimeRatio:
      return time_ratio(value);
  }
  return "";
}

double spread_of(const Point& point, const Measurement& m, Unit unit) {
  if (unit == Unit::kSeconds) return m.spread_s;
  const Measurement* dense = point.find_ok(kDense);
  return unit == Unit::kTimeRatio && dense && dense->median_s > 0 ? m.spread_s / dense->median_s : 0;
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string spread_text(double value, double spread) {
  return "± " + fixed(value > 0 ? 100 * spread / value : 0, 1) + " %";
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
