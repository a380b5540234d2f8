// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Plan expected_row: when it runs, what forward() returns for backward(), and how many digits it keeps.
// NamedLossCalls.ExpectedRows compares it with the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "logitless/logitless.h"
#include "seeded_model.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace expected_row_test {

ContextOptions options_of(PlanKind plan) { return {.threads = 2, .plan = plan, .row_tile = 16, .vocab_tile = 32}; }

struct Rows : SeededModel {
  using SeededModel::SeededModel;

  Logits logits() const {
    return Logits::of(view(states.data(), {tokens, hidden}),
                      {.weight = view(weight.data(), {vocab, hidden}), .bias = bias, .softcap = softcap});
  }
  // Returns d_hidden in the type F.
  template <class F>
  std::vector<F> d_hidden(PlanKind plan) const {
    const std::vector<F> x(states.begin(), states.end()), w(weight.begin(), weight.end()), b(bias.begin(), bias.end());
    std::vector<F> out(x.size());
    const CrossEntropy task = {.targets = targets, .reduction = Reduction::kSum};
    const Logits own = Logits::of(view(x.data(), {tokens, hidden}),
                                  {.weight = view(w.data(), {vocab, hidden}), .bias = b, .softcap = softcap});
    run(Context(options_of(plan)), own, task, {.d_hidden = view(out.data(), {tokens, hidden})});
    return out;
  }
  // Returns the error of the worst row, relative to that row, with respect to float64.
  double worst_row(PlanKind plan) const {
    const std::vector<float> got = d_hidden<float>(plan);
    const std::vector<double> truth = d_hidden<double>(PlanKind::kTwoPass);
    double worst = 0;
    for (auto row = truth.size(); row > 0; row -= static_cast<size_t>(hidden)) {
      double off = 0, size = 0;
      for (size_t i = row - static_cast<size_t>(hidden); i < row; ++i) {
        off += std::pow(static_cast<double>(got[i]) - truth[i], 2);
        size += std::pow(truth[i], 2);
      }
      worst = std::max(worst, std::sqrt(off / size));
    }
    return worst;
  }
};

TEST(ExpectedRow, RunsByItselfWhereOnlyHiddenStatesHaveAGradient) {
  const auto planned = [](bool d_weight, bool d_bias, double softcap, const CrossEntropy& loss,
                          PlanKind kind = PlanKind::kAuto) {
    Rows rows(37, 19, 150), outputs(37, 19, 150);
    rows.softcap = softcap;
    logitless::Gradients gradients = {.d_hidden = view(outputs.states.data(), {37, 19})};
    if (d_weight) gradients.d_weight = view(outputs.weight.data(), {150, 19});
    if (d_bias) gradients.d_bias = outputs.bias;
    CrossEntropy task = loss;
    task.targets = rows.targets;
    return plan(Context(options_of(kind)), rows.logits(), task, gradients).kind;
  };
  const CrossEntropy smoothed = {.label_smoothing = 0.1, .z_loss = 0.1};
  EXPECT_EQ(planned(false, false, 0, {}), PlanKind::kExpectedRow);
  EXPECT_NE(planned(true, false, 0, {}), PlanKind::kExpectedRow);
  EXPECT_NE(planned(false, true, 0, {}), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 5, {}), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 0, smoothed), PlanKind::kExpectedRow);
  EXPECT_NE(planned(false, false, 5, smoothed), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 0, {}, PlanKind::kTwoPass), PlanKind::kTwoPass);
  // A frozen LoRA does not need the tiles' gradients.
  const Rows rows(37, 19, 150);
  Rows outputs = rows;
  Logits logits = rows.logits();
  logits.head.lora = {.a = view(rows.states.data(), {1, 19}), .b = view(rows.weight.data(), {150, 1})};
  logitless::Gradients gradients = {.d_hidden = view(outputs.states.data(), {37, 19})};
  const auto kind = [&] { return plan(Context(), logits, CrossEntropy{.targets = rows.targets}, gradients).kind; };
  EXPECT_EQ(kind(), PlanKind::kExpectedRow);
  gradients.d_lora_a = view(outputs.weight.data(), {1, 19});
  EXPECT_NE(kind(), PlanKind::kExpectedRow);
}

// backward() takes the rows that forward() returns, whatever its own plan.
TEST(ExpectedRow, StatisticsLeaveTheRows) {
  const Rows rows(6, 8, 40);
  const TokenStatistics task = {.targets = rows.targets};
  std::vector<float> out(rows.states.size());
  TokenGrads grads;
  grads.logp.assign(6, 1);
  Forward<TokenStatistics> left = forward(Context(options_of(PlanKind::kExpectedRow)), rows.logits(), task);
  const auto kind_of_backward = [&](PlanKind plan) {
    return backward(Context(options_of(plan)), rows.logits(), task, left, grads, {.d_hidden = view(out.data(), {6, 8})})
        .kind;
  };
  EXPECT_EQ(left.result.plan.kind, PlanKind::kExpectedRow);
  EXPECT_EQ(kind_of_backward(PlanKind::kAuto), PlanKind::kExpectedRow);
  EXPECT_EQ(kind_of_backward(PlanKind::kTwoPass), PlanKind::kTwoPass);
  ExpectedRows& expected = left.result.stats.expected;
  EXPECT_EQ(expected.f32.size(), 48U);
  expected.f32.pop_back();
  expect_invalid_input({"stats.expected has 47 elements", "48"}, [&] { kind_of_backward(PlanKind::kExpectedRow); });
  expected = {};
  expected.f64.resize(48);
  expect_invalid_input({"stats.expected has 0 elements", "48"}, [&] { kind_of_backward(PlanKind::kExpectedRow); });
  EXPECT_TRUE(forward(Context(), rows.logits(), task).result.stats.expected.empty());
}

// The budget holds the statistics' sums, but not one more number per row.
TEST(ExpectedRow, AForwardHalfLeavesNoneWhereTheWalkFindsNoRoom) {
  const Rows rows(2200, 4, 40);
  const TokenStatistics task = {.targets = rows.targets};
  ContextOptions options = options_of(PlanKind::kAuto);
  options.threads = 1;
  const size_t least = plan(Context(options), rows.logits(), task).workspace_bytes;
  options.plan = PlanKind::kExpectedRow;
  ASSERT_GT(plan(Context(options), rows.logits(), task).workspace_bytes, least);
  options.workspace_bytes = least;
  const Forward<TokenStatistics> left = forward(Context(options), rows.logits(), task);
  EXPECT_EQ(left.result.plan.kind, PlanKind::kForwardOnly);
  EXPECT_TRUE(left.result.stats.expected.empty());
}

// p of the target is between 1 - 1e-4 and 1 - 1e-9: the gradient is a small difference between the target's
// row of the head and the others.
TEST(ExpectedRow, KeepsItsDigitsWhereTheTargetIsNearlyCertain) {
  Rows rows(32, 24, 400, 0.05);
  std::fill(rows.bias.begin(), rows.bias.end(), 0.0F);
  // The target's logit exceeds the others by this much.
  for (int64_t row = 0; row < rows.tokens; ++row) rows.aim_at_target(row, 1.6 * (12 + 0.5 * double(row % 24)));
  // A logit of 24 in float32 has an error of up to 24 u sqrt(H), which is the relative error of its
  // exponential.
  EXPECT_LT(rows.worst_row(PlanKind::kExpectedRow), 2e-5);
}

// States and weights are small integers, so that logits are exact even with an offset of 2^24.
TEST(ExpectedRow, KeepsItsDigitsUnderALargeOffset) {
  Rows rows(33, 16, 200);
  for (float& value : rows.states) value = std::round(value);
  for (float& value : rows.weight) value = 2 * std::round(value);
  std::fill(rows.bias.begin(), rows.bias.end(), 16777216.0F);
  EXPECT_LT(rows.worst_row(PlanKind::kExpectedRow), 2e-6);
}

// The slope of the softcap at a target's logit is small if the logit is close to the softcap. The capped
// logit rounds to the softcap itself here, so the slope computed from it would be 0. Only the target's row of
// the head is not zero, so d_hidden is the slope times it.
TEST(ExpectedRow, TheSlopeOfASoftcapKeepsItsDigits) {
  Rows rows(24, 16, 120);
  rows.softcap = 3;
  std::fill(rows.targets.begin(), rows.targets.end(), 0);
  std::fill(rows.weight.begin() + rows.hidden, rows.weight.end(), 0.0F);
  std::fill(rows.bias.begin(), rows.bias.end(), 0.0F);
  for (int64_t row = 0; row < rows.tokens; ++row) rows.aim_at_target(row, 18 + 0.5 * double(row % 12));
  EXPECT_LT(rows.worst_row(PlanKind::kExpectedRow), 1e-5);
}

// A loss that fills a gradient without requesting its statistic.
class UnaskedCross final : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {.cross = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.logp[static_cast<size_t>(row)] = grads.cross[static_cast<size_t>(row)] = -0.1;
  }
};

TEST(ExpectedRow, AGradientOfCrossThatNobodyAsksForTakesAnotherPlan) {
  const Rows rows(20, 8, 90);
  UnaskedCross loss;
  std::vector<float> out(rows.states.size());
  const auto kind = [&](PlanKind plan) {
    return run(Context(options_of(plan)), rows.logits(), CustomLoss{rows.targets, {}, &loss},
               {.d_hidden = view(out.data(), {20, 8})})
        .plan.kind;
  };
  EXPECT_NE(kind(PlanKind::kAuto), PlanKind::kExpectedRow);
  expect_invalid_input({"plan = expected_row cannot run: the loss has a gradient of cross but does not request it"},
                       [&] { kind(PlanKind::kExpectedRow); });
}

TEST(ExpectedRow, RowsThatAreNotNumbersHaveNoOtherGradients) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Rows rows(20, 8, 200);
    rows.states[3 * 8 + 2] = bad;
    const std::vector<float> got = rows.d_hidden<float>(PlanKind::kExpectedRow);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isnan(got[i]), i / 8 == 3) << i;
  }
  Rows nothing(3, 4, 5);
  std::fill(nothing.bias.begin(), nothing.bias.end(), -std::numeric_limits<float>::infinity());
  for (const float value : nothing.d_hidden<float>(PlanKind::kExpectedRow)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace expected_row_test
}  // namespace logitless::testing
