// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The main figures of a run, in words.
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// "4.9×", "less extra peak memory than dense", "245.0 MiB, not 1.16 GiB"
struct Figure {
  std::string figure, words, detail;
};

/// What a contender saves and costs against dense.
struct Claim {
  std::string contender;
  std::string remark;           ///< "loss alone, no gradients", or empty
  std::vector<Figure> figures;  ///< memory, unless there is nothing to say about it, and time
};

struct Headline {
  std::string lead;  ///< where the claims were measured, or why there are none
  std::vector<Claim> claims;
  std::vector<std::string> remarks;  ///< failures, what is missing
};

/// Claims about the largest shape (tokens · hidden · vocabulary) at which dense and another contender ran. Where
/// several points have it, each quotient is the range over these points.
Headline headline(const BenchRun& run);

}  // namespace logitless::report
