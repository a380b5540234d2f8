// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/metric.h"

#include <cmath>
#include <limits>

namespace logitless::report {

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
  return std::isfinite(value) ? human(value, unit) : "–";
}

double spread_of(const Point& point, const Measurement& m, Unit unit) {
  if (unit == Unit::kSeconds) return m.spread_s;
  const Measurement* dense = point.find_ok(kDense);
  return unit == Unit::kTimeRatio && dense && dense->median_s > 0 ? m.spread_s / dense->median_s : 0;
}

std::string spread_text(double value, double spread) {
  return "± " + fixed(value > 0 ? 100 * spread / value : 0, 1) + " %";
}

}  // namespace logitless::report
