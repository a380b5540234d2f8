// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares one benchmark with an earlier one.
#pragma once

#include <string>
#include <vector>

#include "io/bench_run.h"

namespace logitless::cli {

struct Comparison {
  std::string table;   ///< for people
  bool worse = false;  ///< a figure has grown, or a contender that ran before now fails
};

/// Two points are compared if all of their settings are equal, whether swept or not. A figure has changed if
/// it differs by more than the sum of both runs' spreads (half the distance between the quartiles) plus
/// `margin` times the earlier figure. The spread of a memory figure is at least 256 KiB, because pages and
/// the allocator vary by that much.
Comparison compare_runs(const io::BenchRun& before, const io::BenchRun& now, double margin);

/// Throws io::Error if the runs have no point in common. The points of `planned` have no measurements yet.
void check_comparable(const io::BenchRun& before, const io::BenchRun& planned);

/// Returns how two runs differ in settings and options, or else in machine, BLAS and version: "seq_len is 256
/// there and 512 here; threads is not set there and 2 here". A long list is cut short. Empty if they agree.
std::string differences_of(const io::BenchRun& earlier, const io::BenchRun& now);

}  // namespace logitless::cli
