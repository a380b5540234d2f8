// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The page of `logitless report`.
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// One HTML page about the runs, a section each: page.html with their lines as data, which page.js and
/// Chart.js turn into text, charts and tables where it is read. It needs nothing but itself, and its policy
/// lets it load nothing. The same runs give the same bytes.
std::string page(const std::vector<BenchRun>& runs);

}  // namespace logitless::report
