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

/// One object a line, a line a metric: {config, metric, value}; gates have limit and pass as well.
std::string metrics_text(std::span<const GradcheckReport> reports);

}  // namespace logitless::cli
