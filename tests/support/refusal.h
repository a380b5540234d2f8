// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Expects calls to be refused.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "logitless/error.h"

namespace logitless::testing {

/// Expects `call` to throw InvalidInput with a one-line message that contains all of `parts`.
inline void expect_invalid_input(const std::vector<std::string>& parts, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace logitless::testing
