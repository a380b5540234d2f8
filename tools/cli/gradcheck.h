// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck`: loss and gradients of a config's call against the float64 oracle.
#pragma once

#include <string>
#include <vector>

#include "cli/inputs.h"
#include "cli/task_call.h"
#include "io/config.h"
#include "io/tolerances.h"
#include "logitless/environment.h"

namespace logitless::cli {

struct GradcheckOptions {
  std::vector<std::string> config_paths;  ///< each is a check of its own; empty: one check without a file
  std::vector<std::string> assignments;   ///< of --set, for all of them
  TensorPaths tensors;
  std::string json_path;     ///< empty: none; "-": standard output
  std::string metrics_path;  ///< empty: none
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

/// One config's check.
struct GradcheckReport {
  std::string name;  ///< the config's path
  io::Config config;
  Job job;
  Environment environment;
  Metrics metrics;  ///< in the order of the report
  std::vector<io::Gate> gates;
  std::string error;  ///< why nothing was measured; empty: it was

  bool passes() const;
};

/// Every config in turn. Returns the exit status: 0 all gates hold, 1 one does not, 2 a config's inputs are bad (the
/// others run all the same; nothing is written where none does). Throws io::Error for a config that cannot be read,
/// before any check runs.
int run_gradcheck(const GradcheckOptions& options);

}  // namespace logitless::cli
