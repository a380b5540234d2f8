// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "cli/gradcheck.h"
#include "cli/metrics_file.h"

namespace logitless::cli {

/// For a terminal: a line a metric, a line a gate. Empty for a check that measured nothing.
std::string table_of(const GradcheckReport& report);

/// One object.
std::string json_text(std::span<const GradcheckReport> reports);

/// A step is a config, counted from 1; gate/NAME is 1 where the gate holds, else 0.
void write_metrics(std::span<const GradcheckReport> reports, MetricsFile& file);

}  // namespace logitless::cli
