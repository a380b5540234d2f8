// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// One HTML page about the runs, a section each: page.html filled in, with page.css, page.js and Chart.js. It needs
/// nothing but itself: it loads nothing, and runs no script but these two. The same runs give the same bytes.
std::string page(const std::vector<BenchRun>& runs);

}  // namespace logitless::report
