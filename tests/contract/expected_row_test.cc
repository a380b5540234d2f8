// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Plan expected_row: when it runs, what it refuses, what forward() returns for backward(), and how many
// digits it keeps. Drawn calls compare it with the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "logitless/logitless.h"
#include "seeded_model.h"
#include "support/calls.h"
#include "support/every_task.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace expected_row_test {

ContextOptions options_of(PlanKind plan, int threads = 2) {
  ContextOptions options;
  options.plan = plan;
  options.threads = threads;
  options.row_tile = 16;
  options.vocab_tile = 32;
  return options;
}

// A model without a bias, and the gradients of a loss Σ (g_logp logp + g_lse lse) in float64.
struct Rows : SeededModel {
  TokenGrads grads;

  Rows(int64_t tokens_, int64_t hidden_, int64_t vocab_, double scale = 1)
      : SeededModel(tokens_, hidden_, vocab_, scale) {
    std::fill(bias.begin(), bias.end(), 0.0F);
    for (int64_t i = 0; i < tokens; ++i) {
      grads.logp.push_back(1 + 0.25 * static_cast<double>(i % 3));
      grads.lse.push_back(i % 2 == 0 ? 0 : 0.125);
    }
  }

  TokenStats statistics(const Context& context) const {
    return compute_token_stats(context, hidden_states(), head(), ids());
  }
  std::vector<float> d_hidden(const Context& context, const TokenStats& stats, Plan* plan = nullptr) const {
    std::vector<float> out(states.size(), std::numeric_limits<float>::quiet_NaN());
    Gradients outputs;
    outputs.d_hidden = {out.data(), tokens, hidden};
    backpropagate_token_grads(context, hidden_states(), head(), ids(), {}, {}, stats, grads, outputs, plan);
    return out;
  }
  std::vector<float> d_hidden(PlanKind plan, int threads = 2) const {
    const Context context(options_of(plan, threads));
    return d_hidden(context, statistics(context));
  }

  // Returns the probabilities of a row in float64; `others` gets 1 - p of its target, computed without
  // cancellation.
  std::vector<double> probabilities(int64_t row, double& others) const {
    std::vector<double> logits(static_cast<size_t>(vocab));
    for (int64_t v = 0; v < vocab; ++v) {
      double sum = bias[static_cast<size_t>(v)];
      for (int64_t h = 0; h < hidden; ++h) {
        sum += static_cast<double>(states[static_cast<size_t>(row * hidden + h)]) *
               static_cast<double>(weight[static_cast<size_t>(v * hidden + h)]);
      }
      logits[static_cast<size_t>(v)] = sum;
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    const auto target = static_cast<size_t>(targets[static_cast<size_t>(row)]);
    double rest = 0;
    for (size_t v = 0; v < logits.size(); ++v) rest += v == target ? 0 : std::exp(logits[v] - max);
    const double all = rest + std::exp(logits[target] - max);
    others = rest / all;
    for (double& logit : logits) logit = std::exp(logit - max) / all;
    return logits;
  }

  std::vector<double> expected(int64_t row) const {
    double others = 0;
    const std::vector<double> p = probabilities(row, others);
    std::vector<double> out(static_cast<size_t>(hidden));
    for (int64_t v = 0; v < vocab; ++v) {
      if (v == targets[static_cast<size_t>(row)]) continue;
      for (size_t h = 0; h < out.size(); ++h) {
        out[h] += p[static_cast<size_t>(v)] * static_cast<double>(weight[static_cast<size_t>(v * hidden) + h]);
      }
    }
    return out;
  }

  std::vector<double> d_hidden_truth(int64_t row) const {
    double others = 0;
    const auto i = static_cast<size_t>(row), target = static_cast<size_t>(targets[i]);
    const std::vector<double> p = probabilities(row, others);
    std::vector<double> out = expected(row);
    for (size_t h = 0; h < out.size(); ++h) {
      const double of_target = weight[target * static_cast<size_t>(hidden) + h];
      out[h] =
          (grads.lse[i] - grads.logp[i]) * out[h] + (grads.logp[i] * others + grads.lse[i] * p[target]) * of_target;
    }
    return out;
  }

  // Returns the error of the worst row, relative to that row.
  double worst_row(const std::vector<float>& d_hidden) const {
    double worst = 0;
    for (int64_t row = 0; row < tokens; ++row) {
      const std::vector<double> truth = d_hidden_truth(row);
      double off = 0, size = 0;
      for (size_t h = 0; h < truth.size(); ++h) {
        const double difference = d_hidden[static_cast<size_t>(row * hidden) + h] - truth[h];
        off += difference * difference;
        size += truth[h] * truth[h];
      }
      worst = std::max(worst, std::sqrt(off / size));
    }
    return worst;
  }
};

TEST(ExpectedRow, RunsByItselfWhereOnlyHiddenStatesHaveAGradient) {
  const auto planned = [](bool d_weight, bool d_bias, double softcap, const CrossEntropy& loss,
                          PlanKind plan = PlanKind::kAuto) {
    SeededModel model(37, 19, 150);
    model.softcap = softcap;
    Gradients gradients;
    gradients.d_hidden = {model.states.data(), 37, 19};
    if (d_weight) gradients.d_weight = {model.weight.data(), 150, 19};
    if (d_bias) gradients.d_bias = {model.bias.data(), 150};
    const SeededModel inputs = model;
    return cross_entropy
        .plan(Context(options_of(plan)), inputs.hidden_states(), inputs.head(), inputs.ids(), loss, gradients)
        .kind;
  };
  const CrossEntropy smoothed = {.label_smoothing = 0.1, .z_loss = 0.1};
  EXPECT_EQ(planned(false, false, 0, {}), PlanKind::kExpectedRow);
  EXPECT_NE(planned(true, false, 0, {}), PlanKind::kExpectedRow);
  EXPECT_NE(planned(false, true, 0, {}), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 5, {}), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 0, smoothed), PlanKind::kExpectedRow);
  EXPECT_NE(planned(false, false, 5, smoothed), PlanKind::kExpectedRow);
  EXPECT_EQ(planned(false, false, 0, {}, PlanKind::kTwoPass), PlanKind::kTwoPass);
}

TEST(ExpectedRow, TellsWhyItCannotRun) {
  const Context context(options_of(PlanKind::kExpectedRow));
  FromHidden source;
  const Batch batch;
  FromHidden::Outputs outputs;
  Gradients d_weight;
  d_weight.d_weight = outputs.views().d_weight;
  const auto refused = [&](const std::string& why, const std::function<void()>& call) {
    expect_invalid_input({"plan = expected_row cannot run: " + why}, call);
    EXPECT_EQ(outputs.values(), FromHidden::Outputs().values());
  };
  refused("d_hidden is not requested",
          [&] { cross_entropy(context, source.states(), source.head(), batch.targets(), {}, d_weight); });
  PolicyLoss bonus;
  bonus.entropy_bonus = 0.1;
  refused("the loss has a gradient of the entropy",
          [&] { policy_loss(context, source.states(), source.head(), batch.policy(), bonus, outputs.views()); });
  refused("the call has a teacher", [&] {
    distillation_loss(context, source.states(), source.head(), batch.teacher(), batch.targets(), {}, outputs.views());
  });
  refused("the loss has per-row weights",
          [&] { soft_cross_entropy(context, source.states(), source.head(), batch.dense(), {}, outputs.views()); });
  CrossEntropy smoothed;
  smoothed.label_smoothing = 0.1;
  source.softcap = 5;
  refused("the loss has vocabulary weights and the head has a softcap",
          [&] { cross_entropy(context, source.states(), source.head(), batch.targets(), smoothed, outputs.views()); });
  const FromLogits logits;
  FromLogits::Outputs dlogits;
  expect_invalid_input({"plan = expected_row cannot run: finished logits have no head"}, [&] {
    cross_entropy(context, FinishedLogits(logits.data.data(), kBatch, kTime, kVocab), batch.targets(), {},
                  dlogits.views());
  });
}

TEST(ExpectedRow, StatisticsLeaveTheRows) {
  Rows rows(19, 11, 101);
  rows.targets[4] = -100;
  const Context context(options_of(PlanKind::kExpectedRow));
  Plan plan;
  const TokenStats stats = compute_token_stats(context, rows.hidden_states(), rows.head(), rows.ids(), {}, {}, &plan);
  EXPECT_EQ(plan.kind, PlanKind::kExpectedRow);
  EXPECT_EQ(plan_token_stats(context, rows.hidden_states(), rows.head(), rows.ids()).workspace_bytes,
            plan.workspace_bytes);
  ASSERT_EQ(stats.expected.f32.size(), static_cast<size_t>(rows.tokens * rows.hidden));
  EXPECT_TRUE(stats.expected.f64.empty());
  for (int64_t row = 0; row < rows.tokens; ++row) {
    const std::vector<double> truth = row == 4 ? std::vector<double>(11, 0.0) : rows.expected(row);
    for (size_t h = 0; h < truth.size(); ++h) {
      EXPECT_NEAR(stats.expected.f32[static_cast<size_t>(row * rows.hidden) + h], truth[h], 2e-6) << row << " " << h;
    }
  }
  EXPECT_TRUE(rows.statistics(Context(options_of(PlanKind::kAuto))).expected.empty());
  EXPECT_TRUE(rows.statistics(Context(options_of(PlanKind::kTwoPass))).expected.empty());
}

TEST(ExpectedRow, TheBackwardHalfTakesThemUnderAnyUpstreamGradient) {
  Rows rows(50, 13, 300);
  const Context context(options_of(PlanKind::kExpectedRow)), by_itself(options_of(PlanKind::kAuto));
  const TokenStats stats = rows.statistics(context);
  for (const double upstream : {1.0, -2.0, 0.0, 1e-3}) {
    for (double& g : rows.grads.logp) g = upstream * (1 + g);
    for (double& g : rows.grads.lse) g *= upstream;
    Plan plan;
    const std::vector<float> got = rows.d_hidden(by_itself, stats, &plan);
    EXPECT_EQ(plan.kind, PlanKind::kExpectedRow);
    if (upstream == 0) {
      EXPECT_EQ(got, std::vector<float>(got.size(), 0.0F));
      rows = Rows(50, 13, 300);
      continue;
    }
    EXPECT_LT(rows.worst_row(got), 1e-6);
    EXPECT_LT(rows.worst_row(rows.d_hidden(Context(options_of(PlanKind::kTwoPass)), stats, &plan)), 1e-5);
    EXPECT_EQ(plan.kind, PlanKind::kTwoPass);
  }
}

TEST(ExpectedRow, RowsOfTheWrongSizeAreRefused) {
  const Rows rows(6, 8, 40);
  const Context context(options_of(PlanKind::kExpectedRow));
  TokenStats stats = rows.statistics(context);
  stats.expected.f32.pop_back();
  expect_invalid_input({"stats.expected has 47 elements", "48"}, [&] { rows.d_hidden(context, stats); });
  stats.expected = {};
  stats.expected.f64.resize(48);
  expect_invalid_input({"stats.expected has 0 elements", "48"}, [&] { rows.d_hidden(context, stats); });
}

// p of the target is between 1 - 1e-4 and 1 - 1e-9: the gradient is a small difference between the target's
// row of the head and the others.
TEST(ExpectedRow, KeepsItsDigitsWhereTheTargetIsNearlyCertain) {
  Rows rows(32, 24, 400, 0.05);
  for (int64_t row = 0; row < rows.tokens; ++row) {
    // The target's logit exceeds the others by this much.
    rows.aim_at_target(row, 1.6 * (12 + 0.5 * static_cast<double>(row % 24)));
    rows.grads.lse[static_cast<size_t>(row)] = 0;
  }
  double least = 1;
  for (int64_t row = 0; row < rows.tokens; ++row) {
    double others = 0;
    rows.probabilities(row, others);
    least = std::min(least, others);
  }
  EXPECT_LT(least, 1e-7);
  // A logit of 24 in float32 has an error of up to 24 u sqrt(H), which is the relative error of its
  // exponential.
  EXPECT_LT(rows.worst_row(rows.d_hidden(PlanKind::kExpectedRow)), 2e-5);
}

// States and weights are small integers, so that logits are exact even with an offset of 2^24.
TEST(ExpectedRow, KeepsItsDigitsUnderALargeOffset) {
  Rows rows(33, 16, 200);
  const auto integers = [](std::vector<float>& values, float step) {
    for (float& value : values) value = step * std::round(value);
  };
  integers(rows.states, 1);
  integers(rows.weight, 2);
  std::fill(rows.bias.begin(), rows.bias.end(), 16777216.0F);
  EXPECT_LT(rows.worst_row(rows.d_hidden(PlanKind::kExpectedRow)), 2e-6);
}

// The slope of the softcap at a target's logit is small if the logit is close to the softcap. The capped
// logit rounds to the softcap itself here, so the slope computed from it would be 0.
TEST(ExpectedRow, TheSlopeOfASoftcapKeepsItsDigits) {
  Rows rows(24, 16, 120, 0.05);
  rows.softcap = 3;
  for (int64_t row = 0; row < rows.tokens; ++row) {
    rows.aim_at_target(row, 18 + 0.5 * static_cast<double>(row % 12));
  }
  for (int64_t v = 0; v < rows.vocab; ++v) {
    const bool is_target = std::find(rows.targets.begin(), rows.targets.end(), v) != rows.targets.end();
    if (!is_target) std::fill_n(rows.weight.begin() + v * rows.hidden, rows.hidden, 0.0F);
  }
  std::vector<float> got(rows.states.size());
  Gradients outputs;
  outputs.d_hidden = {got.data(), rows.tokens, rows.hidden};
  const Context context(options_of(PlanKind::kExpectedRow));
  // With the gradient of lse, and expected rows of zeros, d_hidden is only the target's term p s w.
  const TokenStats stats = rows.statistics(context);
  TokenGrads lse;
  lse.logp.assign(24, 0.0);
  lse.lse.assign(24, 1.0);
  ASSERT_FALSE(stats.expected.empty());
  TokenStats only_target = stats;
  std::fill(only_target.expected.f32.begin(), only_target.expected.f32.end(), 0.0F);
  backpropagate_token_grads(context, rows.hidden_states(), rows.head(), rows.ids(), {}, {}, only_target, lse, outputs);
  for (int64_t row = 0; row < rows.tokens; ++row) {
    const auto i = static_cast<size_t>(row);
    const float* target = rows.weight.data() + rows.targets[i] * rows.hidden;
    double logit = 0;
    for (int64_t h = 0; h < rows.hidden; ++h) {
      logit += static_cast<double>(rows.states[i * 16 + static_cast<size_t>(h)]) * static_cast<double>(target[h]);
    }
    const double slope = 1 / std::pow(std::cosh(logit / rows.softcap), 2);
    for (int64_t h = 0; h < rows.hidden; ++h) {
      const double want = std::exp(stats.logp[i]) * slope * target[h];
      EXPECT_NEAR(got[i * 16 + static_cast<size_t>(h)], want, 1e-5 * std::abs(want)) << row << " " << h;
    }
  }
}

// A loss that fills a gradient without requesting its statistic.
class UnaskedCross final : public TokenLoss {
 public:
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {.cross = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      grads.logp[static_cast<size_t>(row)] = -1;
      grads.cross[static_cast<size_t>(row)] = -0.1;
    }
  }
};

TEST(ExpectedRow, AGradientOfCrossThatNobodyAsksForTakesAnotherPlan) {
  const Rows rows(20, 8, 90);
  const auto run = [&](PlanKind plan) {
    UnaskedCross loss;
    std::vector<float> out(rows.states.size());
    Gradients outputs;
    outputs.d_hidden = {out.data(), rows.tokens, rows.hidden};
    run_token_loss(Context(options_of(plan)), rows.hidden_states(), rows.head(), rows.ids(), {}, loss, outputs);
    return out;
  };
  const std::vector<float> got = run(PlanKind::kAuto), want = run(PlanKind::kTwoPass);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
  expect_invalid_input({"plan = expected_row cannot run: the loss has a gradient of cross but does not request it"},
                       [&] { run(PlanKind::kExpectedRow); });
}

TEST(ExpectedRow, AForwardHalfLeavesNoneWhereTheWalkFindsNoRoom) {
  const Rows rows(2200, 4, 40);  // one number per row more than the folds of statistics need
  ContextOptions options = options_of(PlanKind::kForwardOnly, 1);
  options.plan = PlanKind::kAuto;
  const size_t least =
      plan_token_stats(Context(options), rows.hidden_states(), rows.head(), rows.ids()).workspace_bytes;
  options.plan = PlanKind::kExpectedRow;
  const Plan whole = plan_token_stats(Context(options), rows.hidden_states(), rows.head(), rows.ids());
  ASSERT_EQ(whole.kind, PlanKind::kExpectedRow);
  ASSERT_GT(whole.workspace_bytes, least);
  options.workspace_bytes = least;
  Plan plan;
  const TokenStats stats =
      compute_token_stats(Context(options), rows.hidden_states(), rows.head(), rows.ids(), {}, {}, &plan);
  EXPECT_EQ(plan.kind, PlanKind::kForwardOnly);
  EXPECT_TRUE(stats.expected.empty());
}

TEST(ExpectedRow, RowsThatAreNotNumbersHaveNoOtherGradients) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Rows rows(20, 8, 200);
    rows.states[3 * 8 + 2] = bad;
    const std::vector<float> got = rows.d_hidden(PlanKind::kExpectedRow);
    const std::vector<float> want = rows.d_hidden(PlanKind::kTwoPass);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << i;
      ASSERT_EQ(std::isnan(got[i]), i / 8 == 3) << i;
    }
  }
  Rows nothing(3, 4, 5);
  std::fill(nothing.bias.begin(), nothing.bias.end(), -std::numeric_limits<float>::infinity());
  for (const float value : nothing.d_hidden(PlanKind::kExpectedRow)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace expected_row_test
}  // namespace logitless::testing
