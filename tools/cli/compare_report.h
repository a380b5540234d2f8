// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/compare.h"

namespace logitless::cli {

/// The table for people.
std::string table_of(const ComparisonReport& report);

/// One JSON object to `path` ("-": standard output). A figure that is NaN, infinite or was not measured is null. Throws
/// io::Error where the file cannot be written.
void write_json(const ComparisonReport& report, const std::string& path);

}  // namespace logitless::cli
