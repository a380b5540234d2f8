// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The measurements of bench. Contenders take turns in a process of their own, A B C A B C ..., so that a
// slowdown of the machine affects all of them.
#pragma once

#include <string>
#include <vector>

#include "cli/common/inputs.h"
#include "cli/measure/process.h"
#include "cli/measure/runner.h"

namespace logitless::cli {

struct TurnsRequest {
  std::vector<std::string> settings;  ///< Config::settings
  std::vector<Contender> contenders;
  int warmup = 0;  ///< untimed turns
  int iters = 0;   ///< timed turns
  SeededValues values = SeededValues::kRandom;
};

/// Returns {"gemm_rate_flops": ..., "contenders": [...]}, as in a line of a benchmark's file. The rate is
/// measured only at level fused, where a large GEMM takes turns too. A call's memory is counted above what
/// was resident before it. A contender that fails or kills its process gets the status "error", and the
/// others are then measured without it.
Json measure_turns(TurnsRequest request, const OnStep& on_step);

/// "dense, turn 2 of 6"
std::string turn_text(const std::string& name, int turn, int turns);

}  // namespace logitless::cli
