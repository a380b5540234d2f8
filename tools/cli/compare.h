// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare`: dense and fused on the same input, each in a process of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/contender.h"
#include "cli/differences.h"
#include "cli/inputs.h"
#include "io/config.h"
#include "io/tolerances.h"
#include "logitless/environment.h"

namespace logitless::cli {

struct CompareOptions {
  std::optional<std::string> config_path;
  std::vector<std::string> assignments;  ///< of --set
  TensorPaths tensors;
  std::string json_path;  ///< empty: none; "-": standard output
  int repeat = 1;
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

/// What one contender did, over all its runs.
struct ContenderReport {
  Outcome last;
  std::vector<double> times_s;
  std::vector<int64_t> extra_peaks;
  double time_s = 0;             ///< median
  int64_t extra_peak_bytes = 0;  ///< median
};

struct ComparisonReport {
  io::Config config;
  Job job;  ///< shape, types and which outputs there were
  Environment environment;
  ContenderReport dense;
  ContenderReport fused;
  double loss_abs = 0;
  std::optional<TensorDifference> losses, d_hidden, d_weight, d_bias;
  std::vector<io::Gate> gates;

  bool agrees() const;
};

/// Returns the exit status: 0 agreement, 1 not. Throws io::Error, InvalidInput, ChildFailure, Interrupted.
int run_compare(const CompareOptions& options);

}  // namespace logitless::cli
