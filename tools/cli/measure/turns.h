// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How bench measures: contenders take turns in a process of their own, A B C A B C and so on, so that
// whatever slows the machine down slows all of them down.
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
  int warmup = 0;  ///< turns that are not timed
  int iters = 0;   ///< turns that are
  SeededValues values = SeededValues::kRandom;
};

/// {"gemm_rate_flops": ..., "contenders": [...]}, the first only at level fused, where a large GEMM takes its
/// turn too, as a line of a benchmark's file holds them; each call's memory is counted above what was
/// resident before it. A contender that fails, or that its process dies of, has the status "error", and the
/// others are then measured without it.
Json measure_turns(TurnsRequest request, const OnStep& on_step);

/// "dense, turn 2 of 6"
std::string turn_text(const std::string& name, int turn, int turns);

}  // namespace logitless::cli
