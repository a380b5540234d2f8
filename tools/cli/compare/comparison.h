// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares two contenders that take turns on one input: dense and fused, or one process and the ranks of a
// grid.
#pragma once

#include <string>

#include "cli/common/command_line.h"
#include "cli/measure/process.h"
#include "cli/ranks/grid.h"

namespace logitless::cli {

struct CompareOptions {
  ConfigFlags config;
  TensorPaths tensors;
  std::string json_path;    ///< empty: none; "-": standard output
  std::string output_path;  ///< empty: none
  std::string dense_path;   ///< the same for the baseline
  int repeat = 1;
  bool quiet = false;
};

/// Measures and compares, on every rank of the grid. With several ranks, all of them run one contender
/// together, and rank 0 runs the other alone. Returns the report of --json on rank 0, null on the others.
/// Throws what either contender throws.
Json compare_contenders(const CompareOptions& options, const io::Config& config, RankGrid& grid, const OnTurn& on_turn);

}  // namespace logitless::cli
