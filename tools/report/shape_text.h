// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

std::vector<const Point*> all_points(const BenchRun& run);

/// What all of these points share: "1,024 tokens, hidden size 1,536, float32, hidden_vocab"
std::string common_shape(const std::vector<const Point*>& points);

}  // namespace logitless::report
