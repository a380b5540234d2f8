// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/metric.h"

#include <limits>

namespace logitless::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double memory(const Point&, const Measurement& m) { return m.ok() ? static_cast<double>(m.extra_peak_bytes) : kNone; }

double time(const Point&, const Measurement& m) { return m.ok() ? m.median_s : kNone; }

double memory_quotient(const Point& point, const Measurement& m) {
  const Measurement* dense = point.find_ok(kDense);
  return dense ? memory(point, *dense) / memory(point, m) : kNone;
}

double time_quotient(const Point& point, const Measurement& m) {
  const Measurement* dense = point.find_ok(kDense);
  return dense ? time(point, m) / dense->median_s : kNone;
}

double no_spread(const Point&, const Measurement&) { return 0; }

double time_spread(const Point&, const Measurement& m) { return m.spread_s; }

double time_quotient_spread(const Point& point, const Measurement& m) {
  const Measurement* dense = point.find_ok(kDense);
  return dense ? m.spread_s / dense->median_s : 0;
}

}  // namespace

const Metric kMemory = {"Extra peak memory", Unit::kBytes, memory, no_spread};
const Metric kTime = {"Time of one call", Unit::kSeconds, time, time_spread};
const Metric kMemoryRatio = {"Extra peak memory, dense ÷ contender", Unit::kMemoryRatio, memory_quotient, no_spread};
const Metric kTimeRatio = {"Time ÷ time of dense", Unit::kTimeRatio, time_quotient, time_quotient_spread};

std::string spread_text(double value, double spread) {
  return "± " + fixed(value > 0 ? 100 * spread / value : 0, 1) + " %";
}

std::string say(const Point& point, const Measurement& measurement, const Metric& metric) {
  if (!measurement.ok()) return measurement.contender + " failed: " + measurement.error;
  const double value = metric.value(point, measurement), spread = metric.spread(point, measurement);
  std::string text = measurement.contender + ": " + human(value, metric.unit);
  if (spread > 0) text.append(" ").append(spread_text(value, spread));
  return text;
}

}  // namespace logitless::report
