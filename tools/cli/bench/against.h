// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One benchmark held against an earlier one.
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"

namespace logitless::cli {

/// A figure before and now.
struct Change {
  double before = 0, now = 0;
  double threshold = 0;  ///< how far apart they have to lie to count

  bool grew() const { return now - before > threshold; }
  bool shrank() const { return before - now > threshold; }
};

struct ChangedContender {
  std::string name;  ///< with its point
  Change time, extra_peak, workspace;
};

struct Comparison {
  std::vector<ChangedContender> changes;  ///< all that ran in both
  std::vector<std::string> failures;      ///< contenders that ran before and fail now
  std::vector<std::string> missing;       ///< points and contenders that only one run has
  std::vector<std::string> notes;         ///< what the machines and builds differ in

  bool worse() const;
};

/// Points belong together where all of their settings agree, whether swept or not. A figure has changed where it
/// differs by more than both runs' spreads (half the distances between the quartiles) together, plus `margin` times the
/// earlier figure. A spread of memory counts as 256 KiB at least: pages and the allocator differ by that much.
Comparison compare_runs(const report::BenchRun& before, const report::BenchRun& now, double margin);

/// Throws io::Error where the runs have no point in common, or other inputs: `at` are the points that will be measured.
void check_comparable(const report::BenchRun& before, const report::BenchRun& now,
                      const std::vector<std::vector<std::string>>& at);

std::string table_of(const Comparison& comparison);

/// What two runs differ in, of settings and options: each such as "seq_len is 256 there and 512 here".
std::vector<std::string> option_differences(const report::BenchRun& there, const report::BenchRun& here);

/// Of machine, BLAS and version.
std::vector<std::string> machine_differences(const report::BenchRun& there, const report::BenchRun& here);

/// "a; b; c", cut short where there are many.
std::string some_of(std::vector<std::string> differences);

}  // namespace logitless::cli
