// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::report {

/// One HTML page about the runs, a section each. It needs nothing but itself: no script, no network. The same runs give
/// the same bytes.
std::string page(const std::vector<BenchRun>& runs);

/// The main picture as an SVG of its own: a row of memory and time for each swept size of each run, or the first row
/// that the page has. It brings its own ground, so that it reads on any page.
std::string picture(const std::vector<BenchRun>& runs);

}  // namespace logitless::report
