// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/bench_run.h"
#include "report/markup.h"

namespace logitless::report {

/// Every point and every contender: all figures of the file but the single times.
void write_table(Markup& html, const BenchRun& run);

}  // namespace logitless::report
