// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Expectations about the calls that a test names.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "generator/drawn_call.h"

namespace logitless::testing {

/// Expects the call to run, and all checks of drawn calls to hold.
inline void expect_right(const DrawnCall& call) {
  const Verdict verdict = check(call);
  EXPECT_EQ(verdict.refusal, "") << code_of(call);
  EXPECT_EQ(verdict.fault, "") << code_of(call);
}

inline void expect_refusal(const DrawnCall& call, const std::string& words) {
  const Verdict verdict = check(call);
  EXPECT_NE(verdict.refusal.find(words), std::string::npos) << "not '" << words << "' but: " << verdict.refusal;
  EXPECT_EQ(verdict.fault, "") << code_of(call);
}

}  // namespace logitless::testing
