// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a benchmark is going to measure. Every mistake in its options is found here, before anything runs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/common/command_line.h"
#include "cli/common/task_call.h"
#include "cli/measure/turns.h"
#include "io/bench_run.h"

namespace logitless::cli {

using io::SweptKey;

struct BenchOptions {
  ConfigFlags config;
  std::vector<std::string> sweep;       ///< of --sweep
  std::vector<std::string> contenders;  ///< empty: those that the level has by default
  int warmup = 1;
  int iters = 5;
  std::string inputs = "random";  ///< or "zeros"
  std::string output_path;        ///< empty: none; "-": standard output
  bool overwrite = false;
  std::string against_path;  ///< empty: none
  double margin = 0.05;      ///< of a figure: how much it may grow beyond the spreads
  bool quiet = false;
};

struct PlannedPoint {
  io::Point outline;  ///< all of a point but what is measured
  io::Config config;
  std::vector<Contender> contenders;

  /// "seq_len=256 model.dtype=float32"; "the config's point" where nothing is swept.
  std::string name;
};

struct BenchPlan {
  std::vector<SweptKey> sweep;
  std::vector<PlannedPoint> points;     ///< at least one
  std::vector<std::string> contenders;  ///< of all points

  /// "key=value": what all points share.
  std::vector<std::string> shared_settings() const;
};

/// Throws io::Error or InvalidInput.
BenchPlan plan_bench(const BenchOptions& options);

/// "kernel.row_tile=8,16": at least one value. A comma between brackets, braces or quotes belongs to a value.
/// Throws io::Error.
SweptKey parse_sweep(const std::string& text);

/// Throws io::Error where a key stands twice, once by itself and once in its section, or also among the
/// `assignments` of --set.
void check_sweep(std::span<const SweptKey> sweep, std::span<const std::string> assignments);

/// "kernel.row_tile=8" for each key: the Cartesian product, in which the last key changes fastest. One
/// empty list where there are no keys. Throws io::Error where it is larger than any run could be.
std::vector<std::vector<std::string>> assignments_of(std::span<const SweptKey> sweep);

}  // namespace logitless::cli
