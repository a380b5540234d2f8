// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Draws random calls of every task, compares each with the oracle, and shrinks a call that fails. fuzz_calls
// draws more of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>

#include "generator/drawn_call.h"

namespace rc {

template <>
struct Arbitrary<logitless::testing::DrawnCall> {
  static Gen<logitless::testing::DrawnCall> arbitrary() {
    using logitless::testing::DrawnCall;
    return [](const Random& random, int) {
      Random next = random;
      return shrinkable::shrinkRecur(logitless::testing::draw_call(next.next()), [](const DrawnCall& call) {
        return seq::fromContainer(logitless::testing::simpler_calls(call));
      });
    };
  }
};

}  // namespace rc

namespace logitless::testing {

void showValue(const DrawnCall& call, std::ostream& out) { out << '\n' << code_of(call); }

namespace {

// Draws the same calls each time; RC_PARAMS="seed=N max_success=M" draws others.
TEST(DrawnCalls, HoldWhatTheLibraryPromises) {
  setenv("RC_PARAMS", "seed=1 max_success=4000", 0);
  EXPECT_TRUE(rc::check([](const DrawnCall& call) {
    const Verdict verdict = check(call);
    RC_CLASSIFY(!verdict.refusal.empty(), "refused");
    if (!verdict.fault.empty()) RC_FAIL(verdict.fault);
  }));
}

}  // namespace
}  // namespace logitless::testing
