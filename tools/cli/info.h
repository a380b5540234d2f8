// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless info`: what runs on this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "logitless/blas.h"

namespace logitless::cli {

struct InfoOptions {
  std::optional<std::string> config_path;
  std::vector<std::string> assignments;  ///< of --set; the keys of the context matter: threads, kernel.*
  BlasKernels blas;                      ///< what the command did to the BLAS at its start
  bool json = false;
};

/// Returns the exit status. Throws io::Error or InvalidInput.
int run_info(const InfoOptions& options);

}  // namespace logitless::cli
