// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "cli/gradcheck.h"

namespace logitless::cli {

/// For a terminal: a line a metric, a line a gate. Empty for a check that measured nothing.
std::string table_of(const GradcheckReport& report);

/// One object.
std::string json_text(std::span<const GradcheckReport> reports);

/// One object a line: {step, name, value}. A step is a config, counted from 1; gate/NAME is 1 where the gate holds,
/// else 0.
std::string metrics_text(std::span<const GradcheckReport> reports);

}  // namespace logitless::cli
