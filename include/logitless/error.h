// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

#include "logitless/export.h"

namespace logitless {

/// An argument breaks its contract. what() names the argument, the offending value, where it stands and the
/// rule, in one line. It is thrown before any output is written.
class LOGITLESS_API InvalidInput : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace logitless
