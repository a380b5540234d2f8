// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "report/run.h"
#include "report/units.h"

namespace logitless::report {

/// One of the two figures that drawings show.
struct Metric {
  const char* title;
  Unit unit;
  double (*value)(const Measurement&);
  double (*spread)(const Measurement&);
};

inline constexpr Metric kMemory = {"Extra peak memory", Unit::kBytes,
                                   [](const Measurement& m) { return static_cast<double>(m.extra_peak_bytes); },
                                   [](const Measurement&) { return 0.0; }};
inline constexpr Metric kTime = {"Time of one call", Unit::kSeconds, [](const Measurement& m) { return m.median_s; },
                                 [](const Measurement& m) { return m.spread_s; }};
inline constexpr std::array<Metric, 2> kMetrics = {kMemory, kTime};

/// "one_pass: 7.64 s ± 20 ms", or its error.
std::string say(const Measurement& measurement, const Metric& metric);

}  // namespace logitless::report
