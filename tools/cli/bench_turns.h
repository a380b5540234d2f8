// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the child of a point does.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/bench_point.h"

namespace logitless::cli {

inline constexpr const char* kOutOfMemory = "out of memory (an allocation failed)";

/// Called before each step: whose turn it is (empty: nobody's), what is done, and which share of all turns is over.
using OnTurn = std::function<void(const std::string& contender, const std::string& step, double share)>;

/// Draws the inputs and lets the contenders run, A B C A B C and so on, so that whatever slows the machine down slows
/// all of them down; at level fused a large GEMM takes part. Each call's memory is counted above what was resident
/// before it. Returns what measure_point() does. Throws io::Error where there are no inputs; what a contender throws is
/// its result.
nlohmann::ordered_json take_turns(const PointRequest& request, const OnTurn& on_turn);

/// The line of a contender that did not run.
nlohmann::ordered_json failed_contender(const std::string& name, const std::string& message);

}  // namespace logitless::cli
