// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One benchmark held against an earlier one.
#pragma once

#include <string>
#include <vector>

#include "io/bench_run.h"

namespace logitless::cli {

struct Comparison {
  std::string table;   ///< for people
  bool worse = false;  ///< something has grown, or a contender that ran fails now
};

/// Points belong together where all of their settings agree, whether swept or not. A figure has changed where
/// it differs by more than both runs' spreads (half the distances between the quartiles) together, plus
/// `margin` times the earlier figure. A spread of memory counts as 256 KiB at least: pages and the allocator
/// differ by that much.
Comparison compare_runs(const io::BenchRun& before, const io::BenchRun& now, double margin);

/// Throws io::Error where the runs have no point in common. The points of `planned` have no measurements yet.
void check_comparable(const io::BenchRun& before, const io::BenchRun& planned);

/// What two runs differ in, of settings and options, or else of machine, BLAS and version: "seq_len is 256
/// there and 512 here; threads is not set there and 2 here", cut short where there is much. Empty where they
/// agree.
std::string differences_of(const io::BenchRun& there, const io::BenchRun& here);

}  // namespace logitless::cli
