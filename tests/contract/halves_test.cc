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

TYPED_TEST(Halves, AnUpstreamGradientIsFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  visit_every_task(this->source, this->batch, [&](const auto& task) {
    // Token gradients are functions of the statistics, and may be NaN like these.
    if constexpr (!requires { task.grads; }) {
      SCOPED_TRACE(task.name);
      const auto forward = task.forward(Context());
      typename TypeParam::Outputs outputs;
      for (const double bad : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity}) {
        expect_invalid_input({"upstream",
                              " = " + std::string(bad != bad ? "nan"
                                                  : bad > 0  ? "inf"
                                                             : "-inf"),
                              "finite"},
                             [&] { task.backward(Context(), forward, bad, outputs.views()); });
      }
      EXPECT_EQ(outputs.values(), typename TypeParam::Outputs().values());
    }
  });
}

// Only cross-entropy takes a span of upstream gradients: one value, or with reduction none one per token.
TYPED_TEST(Halves, TheUpstreamGradientsOfCrossEntropyAreAsManyAsItsLosses) {
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    CrossEntropy options;
    options.reduction = reduction;
    const auto call = [&](const auto& function, const auto&... rest) {
      return this->source.call(function, Context(), this->batch.targets(), options, rest...);
    };
    const Forward<CrossEntropy> forward = call(LOGITLESS_TEST_CALL(cross_entropy.forward));
    const size_t wanted = reduction == Reduction::kNone ? kTokens : 1;
    typename TypeParam::Outputs outputs;
    const auto backward = [&](const std::vector<double>& upstream) {
      call(LOGITLESS_TEST_CALL(cross_entropy.backward), forward, std::span<const double>(upstream), outputs.views());
    };
    for (const size_t count : {size_t{0}, size_t{2}, size_t{kTokens - 1}, size_t{kTokens + 1}}) {
      expect_invalid_input({"upstream has " + std::to_string(count) + " entries", std::to_string(wanted)},
                           [&] { backward(std::vector<double>(count, 1.0)); });
    }
    std::vector<double> upstream(wanted, 1.0);
    upstream[wanted / 2] = std::numeric_limits<double>::quiet_NaN();
    expect_invalid_input({"upstream", "nan", "finite"}, [&] { backward(upstream); });
    EXPECT_EQ(outputs.values(), typename TypeParam::Outputs().values());
    if (wanted == 1) continue;
    // The entry of an ignored token is not read.
    upstream.assign(wanted, 1.0);
    upstream[5] = std::numeric_limits<double>::quiet_NaN();
    typename TypeParam::Outputs whole;
    backward(upstream);
    call(LOGITLESS_TEST_CALL(cross_entropy.backward), forward, 1.0, whole.views());
    EXPECT_EQ(outputs.values(), whole.values());
  }
}

}  // namespace halves_test
}  // namespace logitless::testing
