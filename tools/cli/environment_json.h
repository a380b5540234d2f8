// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "logitless/environment.h"

namespace logitless::cli {

/// Every field of Environment under its own name.
nlohmann::ordered_json json_of(const Environment& environment);

}  // namespace logitless::cli
