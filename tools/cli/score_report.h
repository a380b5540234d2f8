// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/score.h"

namespace logitless::cli {

/// The table for people.
std::string table_of(const ScoreReport& report);

/// The same as an object; what is not finite is null.
nlohmann::ordered_json json_of(const ScoreReport& report);

}  // namespace logitless::cli
