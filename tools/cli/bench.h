// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless bench`: time and memory over a sweep of config keys, written point by point.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace logitless::cli {

struct BenchOptions {
  std::optional<std::string> config_path;
  std::vector<std::string> assignments;  ///< of --set
  std::vector<std::string> sweep;        ///< of --sweep
  std::vector<std::string> contenders;   ///< empty: those that the level has by default
  int warmup = 1;
  int iters = 5;
  std::string inputs = "random";  ///< or "zeros"
  std::string output_path;        ///< empty: none; "-": standard output
  bool overwrite = false;
  std::string against_path;  ///< empty: none
  double margin = 0.05;      ///< of a figure: how much it may grow beyond the spreads
  std::string metrics_path;  ///< empty: none
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

/// Returns the exit status: 0 done, 1 something grew against the earlier run, 3 there is a point at which no contender
/// ran. Throws io::Error, InvalidInput, ChildFailure, Interrupted.
int run_bench(const BenchOptions& options);

}  // namespace logitless::cli
