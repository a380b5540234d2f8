// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "cli/contender.h"

namespace logitless::cli {

/// A child process died or could not do its work; what() says which one and why.
class ChildFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// SIGINT, SIGTERM or SIGHUP arrived while a child ran. The child is gone by then.
struct Interrupted {
  int signal;
};

/// Runs `job` in a new process of this executable and waits for it. Throws ChildFailure, Interrupted, or InvalidInput
/// where the child's call threw that.
Outcome run_in_child(const Job& job);

}  // namespace logitless::cli
