// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "report/bench_run.h"

namespace logitless::cli {

/// A line a contender: time, spread, time divided by that of dense, share of the GEMM rate, memory, plan.
std::string table_of(const report::Point& point);

}  // namespace logitless::cli
