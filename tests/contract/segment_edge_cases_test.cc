// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of chosen segments in edge cases: rows, types, shapes, budgets and callers that most models do
// not have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "logitless/logitless.h"
#include "segment_calls.h"
#include "support/calls.h"
#include "support/views.h"

namespace logitless::testing {
namespace segment_edge_cases_test {

TEST(SegmentEdgeCases, RowsThatAreNotNumbersHaveNoOtherGradients) {
  SeededModel model(30, 9, 2000, 2);
  model.states[5 * 9 + 2] = std::numeric_limits<float>::quiet_NaN();
  model.states[7 * 9 + 1] = std::numeric_limits<float>::infinity();
  const Caller run = cross_entropy_of(model);
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  for (const BackwardOptions& backward : {sampled(0.2), by_noise(0.1), certified(0.01)}) {
    Plan plan;
    const Outputs got = outputs_of(model, run, backward, &plan);
    for (size_t i = 0; i < got.values.size(); ++i) {
      ASSERT_EQ(std::isnan(got.values[i]), std::isnan(exact.values[i])) << i;
    }
  }
}

TEST(SegmentEdgeCases, NearlyCertainTargetsKeepTheirDigits) {
  SeededModel model(16, 64, 1000, 0.1);
  for (int64_t row = 0; row < model.tokens; ++row) {
    model.aim_at_target(row, 30);
  }
  const Caller run = cross_entropy_of(model);
  const Outputs exact = outputs_of(model, run, {}, nullptr, options_of(1, PlanKind::kTwoPass));
  // The other entries have a probability of 1e-7 together. A part of them is drawn, and the targets' own rows
  // keep their digits, which 1 - p in float32 would lose.
  Plan plan;
  const Outputs got = outputs_of(model, run, sampled(5e-8), &plan);
  EXPECT_LT(plan.kept_share, 0.5);
  for (const int64_t target : model.targets) {
    // Draws of other rows are included too, about a hundredth.
    const auto begin = static_cast<size_t>((model.tokens + target) * 64);
    double most = 0;
    for (size_t c = 0; c < 64; ++c) most = std::max(most, std::abs(static_cast<double>(exact.values[begin + c])));
    for (size_t c = 0; c < 64; ++c) {
      EXPECT_NEAR(got.values[begin + c], exact.values[begin + c], 0.1 * most) << target;
    }
  }
}

// Rows without any gradient; some of them have been processed.
TEST(SegmentEdgeCases, RowsWithoutAGradientGetZeros) {
  const SeededModel model(30, 9, 2000, 2);
  const Context context(options_of(2));
  const auto forward =
      cross_entropy.forward(context, model.hidden_states(), model.head(), model.ids(), {.reduction = Reduction::kNone});
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>(), {3, 20}}) {
    std::vector<double> upstream(30, 0.0);
    for (const int64_t row : rows) upstream[static_cast<size_t>(row)] = 1;
    Outputs outputs(model);
    Gradients views = outputs.views();
    views.backward = sampled(0.2);
    cross_entropy.backward(context, model.hidden_states(), model.head(), model.ids(), {.reduction = Reduction::kNone},
                           forward, upstream, views);
    for (int64_t i = 0; i < 30 * 9; ++i) {
      ASSERT_EQ(outputs.values[static_cast<size_t>(i)] != 0, upstream[static_cast<size_t>(i / 9)] != 0) << i / 9;
    }
    if (!rows.empty()) continue;
    for (const float value : outputs.values) ASSERT_EQ(value, 0.0F);
  }
}

TEST(SegmentEdgeCases, TinyAndInfiniteGradients) {
  const SeededModel model(40, 9, 2000, 4);
  CrossEntropy small;
  small.loss_scale = 1e-30;
  Plan of_small, of_plain;
  outputs_of(model, cross_entropy_of(model, small), by_noise(0.05), &of_small);
  outputs_of(model, cross_entropy_of(model), by_noise(0.05), &of_plain);
  EXPECT_LT(of_plain.kept_share, 0.5);
  EXPECT_NEAR(of_small.kept_share, of_plain.kept_share, 0.05 * of_plain.kept_share);

  const TokenStats stats = compute_token_stats(Context(options_of()), model.hidden_states(), model.head(), model.ids());
  TokenGrads grads;
  grads.logp.assign(40, -1.0);
  grads.logp[3] = -std::numeric_limits<double>::infinity();
  const Caller run = [&](const Context& context, const Gradients& views) {
    Plan plan;
    backpropagate_token_grads(context, model.hidden_states(), model.head(), model.ids(), {}, {}, stats, grads, views,
                              &plan);
    return plan;
  };
  const Outputs exact = outputs_of(model, run, {});
  for (const BackwardOptions& backward : {certified(0.01), sampled(0.1)}) {
    const Outputs got = outputs_of(model, run, backward);
    for (size_t i = 0; i < got.values.size(); ++i) {
      ASSERT_EQ(std::isfinite(got.values[i]), std::isfinite(exact.values[i])) << i;
    }
  }
}

// A draw's outcome must not decide whether it is used: here it takes one of two segments, or none, in
// addition to the target's.
TEST(SegmentEdgeCases, TheMeanIsExactWhereADrawMayTakeMost) {
  SeededModel model(1, 3, 192, 0.01);
  model.targets[0] = 5;
  expect_unbiased(model, cross_entropy_of(model), 1.45, 0.7);
}

TEST(SegmentEdgeCases, ATightBudgetMakesThemExact) {
  const SeededModel model(40, 9, 20000, 2);
  ContextOptions options = options_of(1);
  const Caller run = cross_entropy_of(model);
  Plan wide, tight;
  outputs_of(model, run, sampled(0.2), &wide, options);
  EXPECT_LT(wide.kept_share, 0.5);
  EXPECT_GE(wide.workspace_bytes, 40u * (20000 / 64) * sizeof(float));
  options.workspace_bytes = wide.workspace_bytes / 2;
  outputs_of(model, run, sampled(0.2), &tight, options);
  EXPECT_EQ(tight.kept_share, 1);
  EXPECT_LE(tight.workspace_bytes, options.workspace_bytes);
}

// A callback may update the head at once, because its entries will not be read again.
TEST(SegmentEdgeCases, ASinkMayOverwriteTheHead) {
  SeededModel model(60, 17, 1500, 1);
  const auto hidden_of = [&](bool updates) {
    std::vector<float> hidden(60 * 17);
    Gradients gradients;
    gradients.d_hidden = {hidden.data(), 60, 17};
    gradients.backward = sampled(0.1, 3);
    gradients.weight_sink = [&](int64_t first, int64_t count, const ConstMatrix&) {
      if (updates) std::fill_n(model.weight.begin() + first * 17, count * 17, std::numeric_limits<float>::quiet_NaN());
    };
    EXPECT_LT(run_cross_entropy(model, Context(options_of(2)), gradients).kept_share, 0.5);
    return hidden;
  };
  const std::vector<float> want = hidden_of(false);
  EXPECT_EQ(hidden_of(true), want);
}

// A thread of a caller's team has a thread number outside the call's team.
TEST(SegmentEdgeCases, InsideATeamOfTheCallers) {
  const SeededModel model(40, 9, 2000, 4);
  const Caller run = cross_entropy_of(model);
  for (const BackwardOptions& backward : {certified(0.01), sampled(0.1), by_noise(0.05)}) {
    const Outputs want = outputs_of(model, run, backward);
    std::vector<std::vector<float>> got(3);
#pragma omp parallel for num_threads(3)
    for (size_t i = 0; i < got.size(); ++i) got[i] = outputs_of(model, run, backward).values;
    for (const auto& one : got) EXPECT_EQ(one, want.values);
  }
}

}  // namespace segment_edge_cases_test
}  // namespace logitless::testing
