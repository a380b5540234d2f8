// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "logitless/export.h"

namespace logitless {

/// Thrown when an argument breaks its contract, before any output is written. what() names the argument, the
/// offending value, its position and the rule, in one line.
class LOGITLESS_API InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace logitless
