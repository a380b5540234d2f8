// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The main figures of a run, in words.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "report/bench_run.h"

namespace logitless::report {

/// What each contender saves and costs against dense, at the largest shape (tokens · hidden · vocabulary) at which
/// dense and another contender ran. Where several points have it, each quotient is the range over these points.
///
///     {lead,     // where the claims were measured, or why there are none
///      claims:   [{contender, remark, figures: [{figure, words, detail}]}],  // memory where it is not 0 ÷ 0, and
///      time:
///                // {"4.9×", "less extra peak memory than dense", "245.0 MiB, not 1.16 GiB"}
///      remarks}  // failures, what is missing
nlohmann::ordered_json headline(const BenchRun& run);

}  // namespace logitless::report
