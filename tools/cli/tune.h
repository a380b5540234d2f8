// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace logitless::cli {

struct TuneOptions {
  std::optional<std::string> config_path;
  std::vector<std::string> assignments;  ///< of --set
  std::string output_path;               ///< the profile; empty: nothing is written
  double budget_s = 300;                 ///< about how long it may take
  bool quiet = false;
};

/// Looks for the kernel keys that run a config's shape fastest on this machine. Returns the exit status. Throws
/// io::Error, InvalidInput or Interrupted; then no file has changed.
int run_tune(const TuneOptions& options);

}  // namespace logitless::cli
