// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One point of a benchmark, measured in a process of its own: contenders take turns on the same seeded inputs.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/inputs.h"

namespace logitless::cli {

/// One way to run the task that a config describes.
struct BenchContender {
  std::string name;
  std::vector<std::string> assignments = {};  ///< on top of the point's settings
  bool dense = false;                         ///< plan dense instead of the config's
  bool forward_only = false;
};

/// The config that it runs with. Throws io::Error.
io::Config contender_config(std::vector<std::string> settings, const BenchContender& contender);

struct PointRequest {
  std::vector<std::string> settings;  ///< Config::settings
  std::vector<BenchContender> contenders = {};
  int warmup = 1;  ///< turns that are not timed
  int iters = 5;   ///< turns that are
  SeededValues values = SeededValues::kRandom;
  bool gemm_rate = true;  ///< at level fused a large GEMM takes its turn too
};

/// What the child does now: "drawing the inputs", "dense, turn 2 of 6"; and which share of its turns is over.
using OnStep = std::function<void(const std::string& what, double share)>;

/// {"gemm_rate_flops": ..., "contenders": [...]}, the first only where it was asked for, as a line of a benchmark's
/// file holds them. A contender that fails, or that its process dies of, has the status "error"; the others are then
/// measured without it. Throws Interrupted.
nlohmann::ordered_json measure_point(PointRequest request, const OnStep& on_step);

/// The hidden command of the child, and the child's whole life. Returns its exit status.
inline constexpr const char* kPointCommand = "run-point";
int run_point(const ChildEnds& ends);

}  // namespace logitless::cli
