// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck`: loss and gradients of a config's call against the float64 oracle.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common/output.h"
#include "cli/common/task_call.h"
#include "io/config.h"
#include "io/tolerances.h"
#include "logitless/environment.h"

namespace logitless::cli {

/// One config's check.
struct GradcheckReport {
  std::string name;  ///< the config's path
  io::Config config;
  Job job;
  Environment environment;
  Metrics metrics;  ///< in the order of the report
  std::vector<io::Gate> gates;
  std::string error;  ///< why nothing was measured; empty: it was

  bool passes() const;
};

/// For a terminal: a line a metric, a line a gate. Empty for a check that measured nothing.
std::string table_of(const GradcheckReport& report);

/// One object.
Json json_of(std::span<const GradcheckReport> reports);

/// A step is a config, counted from 1; gate/NAME is 1 where the gate holds, else 0.
void write_metrics(std::span<const GradcheckReport> reports, MetricsFile& file);

}  // namespace logitless::cli
