// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a benchmark will measure. All mistakes in its options are found here, before anything runs.
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
  std::vector<std::string> sweep;       ///< arguments of --sweep
  std::vector<std::string> contenders;  ///< empty: the defaults of the level
  int warmup = 1;
  int iters = 5;
  std::string inputs = "random";  ///< or "zeros"
  std::string output_path;        ///< empty: no file; "-": standard output
  bool overwrite = false;
  std::string against_path;  ///< empty: no comparison
  double margin = 0.05;      ///< allowed growth beyond the spreads, as a share of a figure
  bool quiet = false;
};

struct PlannedPoint {
  io::Point outline;  ///< the point without its measurements
  io::Config config;
  std::vector<Contender> contenders;

  /// "seq_len=256 model.dtype=float32", or "the config's point" if nothing is swept.
  std::string name;
};

struct BenchPlan {
  std::vector<SweptKey> sweep;
  std::vector<PlannedPoint> points;     ///< at least one
  std::vector<std::string> contenders;  ///< of all points together

  /// The settings that all points share, as "key=value".
  std::vector<std::string> shared_settings() const;
};

/// Throws io::Error or InvalidInput.
BenchPlan plan_bench(const BenchOptions& options);

/// Parses "kernel.row_tile=8,16", with at least one value. A comma inside brackets, braces or quotes belongs
/// to the value. Throws io::Error.
SweptKey parse_sweep(const std::string& text);

/// Throws io::Error if a key is set twice: by two sweeps, by itself and by its section, or also by the
/// `assignments` of --set.
void check_sweep(std::span<const SweptKey> sweep, std::span<const std::string> assignments);

/// Returns the Cartesian product as lists of "kernel.row_tile=8", one entry per key; the last key changes
/// fastest. Without keys it is one empty list. Throws io::Error if there are more than kMostPoints.
std::vector<std::vector<std::string>> assignments_of(std::span<const SweptKey> sweep);

}  // namespace logitless::cli
