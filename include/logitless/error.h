// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "logitless/export.h"

namespace logitless {

/// It is thrown when an argument breaks its contract. what() names the argument, the offending value, where
/// it stands and the rule, in one line. No output has been written by then.
class LOGITLESS_API InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace logitless
