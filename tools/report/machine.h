// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/bench_run.h"

namespace logitless::report {

/// "logitless 0.1.0, AMD EPYC 9R14, 2 threads, AVX3_ZEN4, openblas SkylakeX, 2026-11-21": what the environment tells of
/// it.
std::string machine_line(const BenchRun& run);

}  // namespace logitless::report
