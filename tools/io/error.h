// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace logitless::io {

/// A file, a config or a tensor in a file breaks a rule. what() is one line that names the place and the rule.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace logitless::io
