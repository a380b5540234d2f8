// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Every task, of hidden states and of finished logits: the plan functions say what runs, the forward half
// returns what one call returns, and the backward half writes the bits of two pass, times the upstream
// gradient.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/every_task.h"

namespace logitless::testing {
namespace {

Context two_pass() {
  ContextOptions options;
  options.plan = PlanKind::kTwoPass;
  options.vocab_tile = 64;
  return Context(options);
}

void expect_same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)), 0);
}

void expect_plan(const Plan& planned, const Plan& ran) {
  EXPECT_EQ(planned.kind, ran.kind);
  EXPECT_EQ(planned.row_tile, ran.row_tile);
  EXPECT_EQ(planned.row_block, ran.row_block);
  EXPECT_NE(planned.row_tile == 0, planned.row_block == 0);
  EXPECT_EQ(planned.vocab_tile, ran.vocab_tile);
  EXPECT_EQ(planned.workspace_bytes, ran.workspace_bytes);
  EXPECT_GT(planned.least_workspace_bytes, 0u);
  EXPECT_LE(planned.least_workspace_bytes, planned.workspace_bytes);
}

template <class Source>
struct Halves : ::testing::Test {
  using Outputs = typename Source::Outputs;

  // `inputs` are all arguments between the source and the options.
  template <class One, class Forward, class Backward, class Planned, class Options, class... Inputs>
  void match(One one, Forward forward_half, Backward backward_half, Planned planned, const Options& options,
             const Inputs&... inputs) {
    const Context context = two_pass();
    Outputs at_once, apart, twice;
    const auto result = source.call(one, context, inputs..., options, at_once.views());
    const auto forward = source.call(forward_half, context, inputs..., options);
    EXPECT_EQ(forward.result.loss, result.loss);
    EXPECT_NE(result.loss, 0);
    expect_same_bits(forward.result.per_token_logps, result.per_token_logps);
    expect_same_bits(forward.stats.logp, result.per_token_logps);
    expect_plan(source.call(planned, context, inputs..., options, at_once.views()), result.plan);

    source.call(backward_half, context, inputs..., options, forward, 1.0, apart.views());
    EXPECT_EQ(apart.values(), at_once.values());
    const decltype(apart.views()) nowhere;
    EXPECT_EQ(source.call(backward_half, context, inputs..., options, forward, 1.0, nowhere).kind,
              PlanKind::kForwardOnly);
    const Plan plan = source.call(backward_half, context, inputs..., options, forward, -2.0, twice.views());
    EXPECT_EQ(plan.kind, PlanKind::kTwoPass);
    for (size_t i = 0; i < twice.values().size(); ++i) ASSERT_EQ(twice.values()[i], -2 * at_once.values()[i]) << i;
  }

  Source source;
  Batch batch;
};

using Sources = ::testing::Types<FromHidden, FromLogits>;
TYPED_TEST_SUITE(Halves, Sources);

TYPED_TEST(Halves, CrossEntropy) {
  CrossEntropyOptions options;
  options.label_smoothing = 0.1;
  options.z_loss = 1e-3;
  options.token.temperature = 0.7;
  this->match(LOGITLESS_TEST_CALL(cross_entropy), LOGITLESS_TEST_CALL(cross_entropy_forward),
              LOGITLESS_TEST_CALL(cross_entropy_backward), LOGITLESS_TEST_CALL(plan_cross_entropy), options,
              this->batch.targets());
}

TYPED_TEST(Halves, PolicyLoss) {
  PolicyOptions options;
  options.entropy_bonus = 0.01;
  this->match(LOGITLESS_TEST_CALL(policy_loss), LOGITLESS_TEST_CALL(policy_loss_forward),
              LOGITLESS_TEST_CALL(policy_loss_backward), LOGITLESS_TEST_CALL(plan_policy_loss), options,
              this->batch.policy());
}

TYPED_TEST(Halves, PreferenceLoss) {
  const std::vector<double> temperatures(kTokens, 1.3);
  PreferenceOptions options;
  options.token.temperatures = temperatures;
  this->match(LOGITLESS_TEST_CALL(preference_loss), LOGITLESS_TEST_CALL(preference_loss_forward),
              LOGITLESS_TEST_CALL(preference_loss_backward), LOGITLESS_TEST_CALL(plan_preference_loss), options,
              this->batch.targets(), this->batch.reference());
}

TYPED_TEST(Halves, KtoLoss) {
  this->match(LOGITLESS_TEST_CALL(kto_loss), LOGITLESS_TEST_CALL(kto_loss_forward),
              LOGITLESS_TEST_CALL(kto_loss_backward), LOGITLESS_TEST_CALL(plan_kto_loss), KtoOptions(),
              this->batch.kto());
}

// The two halves of a loss of one's own, whose gradient of logp is 1 everywhere.
TYPED_TEST(Halves, TokenStatistics) {
  const auto& source = this->source;
  const Targets targets = this->batch.targets();
  const Context context = two_pass();
  StatsRequest request;
  request.entropy = true;
  Plan ran;
  const TokenStats stats =
      source.call(LOGITLESS_TEST_CALL(compute_token_stats), context, targets, TokenOptions(), request, &ran);
  expect_plan(source.call(LOGITLESS_TEST_CALL(plan_token_stats), context, targets, TokenOptions(), request), ran);
  TokenGrads grads;
  grads.logp.assign(kTokens, -1.0);
  typename TestFixture::Outputs apart, sum;
  source.call(LOGITLESS_TEST_CALL(backpropagate_token_grads), context, targets, TokenOptions(), request, stats, grads,
              apart.views(), &ran);
  CrossEntropyOptions options;
  options.reduction = Reduction::kSum;
  const CrossEntropyResult result =
      source.call(LOGITLESS_TEST_CALL(cross_entropy), context, targets, options, sum.views());
  expect_same_bits(stats.logp, result.per_token_logps);
  EXPECT_EQ(apart.values(), sum.values());
}

}  // namespace
}  // namespace logitless::testing
