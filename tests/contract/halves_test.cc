// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every task in halves, on hidden states and on finished logits: forward() returns the results of one call,
// and backward() writes the bits of two pass, times the upstream gradient.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace halves_test {

Context context_of(PlanKind plan) {
  ContextOptions options;
  options.plan = plan;
  options.threads = 2;
  options.row_tile = options.row_block = 8;
  options.vocab_tile = 64;
  return Context(options);
}

template <class Source>
struct Halves : ::testing::Test {
  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(Halves, Sources);

TYPED_TEST(Halves, TheBackwardHalfWritesTheBitsOfTwoPass) {
  for (const PlanKind plan : {PlanKind::kAuto, PlanKind::kTwoPass}) {
    const Context context = context_of(plan);
    const Context at_once_context = context_of(plan == PlanKind::kAuto ? PlanKind::kTwoPass : plan);
    visit_every_task(this->source, this->batch, [&](const auto& task) {
      SCOPED_TRACE(std::string(task.name) + ", " + name_of(plan));
      typename TypeParam::Outputs at_once, apart, twice;
      const auto result = task.run(at_once_context, at_once.views());
      const auto forward = task.forward(context);
      EXPECT_TRUE(bytes_of(forward.result) == bytes_of(result));
      if constexpr (requires {
                      forward.stats;
                      result.per_token_logps;
                    }) {
        EXPECT_EQ(forward.stats.logp, result.per_token_logps);
      }
      const Plan ran = task.backward(context, forward, 1.0, apart.views());
      EXPECT_EQ(ran.kind, PlanKind::kTwoPass);
      EXPECT_EQ(apart.values(), at_once.values());
      task.backward(context, forward, -2.0, twice.views());
      for (size_t i = 0; i < twice.values().size(); ++i) ASSERT_EQ(twice.values()[i], -2 * at_once.values()[i]) << i;
      EXPECT_EQ(task.backward(context, forward, 1.0, {}).kind, PlanKind::kForwardOnly);
    });
  }
}

TYPED_TEST(Halves, TheBackwardHalfIsNoOnePass) {
  visit_every_task(this->source, this->batch, [&](const auto& task) {
    SCOPED_TRACE(task.name);
    const Context context = context_of(PlanKind::kOnePass);
    const auto forward = task.forward(context);
    typename TypeParam::Outputs outputs;
    expect_invalid_input({"plan = one_pass cannot run"},
                         [&] { task.backward(context, forward, 1.0, outputs.views()); });
    EXPECT_EQ(outputs.values(), typename TypeParam::Outputs().values());
  });
}

// refused_halves_test.cc has upstream gradients that are refused.
TEST(UpstreamOfEachToken, IsNotReadWhereTheTokenIsIgnored) {
  const FromHidden source;
  const Batch batch;
  const CrossEntropy options = {.reduction = Reduction::kNone};
  const auto forward = cross_entropy.forward(Context(), source.states(), source.head(), batch.targets(), options);
  std::vector<double> upstream(kTokens, 1);
  FromHidden::Outputs usual, outputs;
  const auto backward = [&](FromHidden::Outputs& to) {
    cross_entropy.backward(Context(), source.states(), source.head(), batch.targets(), options, forward,
                           std::span<const double>(upstream), to.views());
  };
  backward(usual);
  ASSERT_EQ(batch.ids[5], -100);
  upstream[5] = std::numeric_limits<double>::quiet_NaN();
  backward(outputs);
  EXPECT_EQ(outputs.values(), usual.values());
}

}  // namespace halves_test
}  // namespace logitless::testing
