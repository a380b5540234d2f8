// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the two ways to compare have in common: dense and fused in one process, or one process and ranks.
#pragma once

#include <string>

#include "cli/common/command_line.h"

namespace logitless::cli {

struct CompareOptions {
  ConfigFlags config;
  TensorPaths tensors;
  std::string json_path;    ///< empty: none; "-": standard output
  std::string output_path;  ///< empty: none
  int repeat = 1;
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

/// On each of the ranks that mpirun has started: holds what they compute together to what rank 0 computes
/// alone, in turns, and lets rank 0 report. Returns the exit status. Throws io::Error and ChildFailure on
/// rank 0 alone.
int compare_over_ranks(const CompareOptions& options, const io::Config& config);

}  // namespace logitless::cli
