// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// NaN and infinities in the inputs: exactly the outputs that are NaN in the formulas become NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/every_task.h"
#include "support/testers.h"

namespace logitless::testing {
namespace non_finite_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBadRow = 20;  // in the second row tile
constexpr int64_t kBadId = 70;   // in the second vocabulary tile
constexpr int64_t kBadColumn = 4;

// The NaN in the outputs, according to the oracle.
struct Pattern {
  std::vector<bool> rows;  ///< [N]: statistics are NaN
  bool loss = false;       ///< the mean is NaN
  int64_t d_hidden_nans = 0;
  int64_t d_weight_nans = 0;
  int64_t d_bias_nans = 0;
};

int64_t count_nans(const oracle::MatrixXd& values) { return values.array().isNaN().count(); }

// Runs the call on inputs that `spoil` has changed, in every type, layout, plan and form. Compares with the
// oracle, and returns where the results are NaN.
Pattern spoil_and_match(const std::function<void(Inputs&)>& spoil, InputSpec spec = {}) {
  Pattern pattern;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      spec.dtype = dtype;
      spec.layout = layout;
      Inputs inputs(spec);
      spoil(inputs);
      CrossEntropy options;
      options.token.ignore_index = spec.ignore_index;
      options.want_entropy = true;
      const Arithmetic arithmetic = arithmetic_for(dtype, Context());
      Expected expected = expect_statistics(
          oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options), arithmetic);
      const oracle::Loss loss = oracle::compute_cross_entropy(expected.problem, expected.stats, options);
      const oracle::Loss loss_bound =
          bound_loss(expected.problem, expected.stats, expected.stat_bounds, options, loss, arithmetic);
      add_gradients(expected, loss.grads, loss_bound.grads);
      for (const std::string& target : simd_targets()) {
        for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << " " << name_of(plan) << " " << target);
          RunSpec run;
          run.context.plan = plan;
          run.context.simd_target = target;
          run.context.threads = 2;
          run.context.row_tile = 16;
          run.context.vocab_tile = 64;
          const Context context(run.context);
          GradientOutputs outputs(inputs, run);
          const auto result = cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                            options, outputs.gradients());
          expect_loss_near(result, expected, loss, loss_bound, options);
          expect_gradients_near(outputs, expected, run, layout);
          expect_statistics_near(compute_token_stats(context, inputs.hidden_view(), inputs.head_view(),
                                                     inputs.targets_view(), {}, {true, true, true, true}),
                                 expected);
        }
      }
      pattern.rows.clear();
      for (int64_t i = 0; i < spec.tokens; ++i) pattern.rows.push_back(std::isnan(expected.stats.lse[i]));
      pattern.loss = std::isnan(loss.loss);
      pattern.d_hidden_nans = count_nans(expected.gradients.d_hidden);
      pattern.d_weight_nans = count_nans(expected.gradients.d_weight);
      pattern.d_bias_nans = count_nans(expected.gradients.d_bias);
    }
  }
  return pattern;
}

TEST(NonFinite, WithoutAnyNothingIsNaN) {
  const Pattern pattern = spoil_and_match([](Inputs&) {});
  EXPECT_EQ(pattern.rows, std::vector<bool>(37, false));
  EXPECT_FALSE(pattern.loss);
  EXPECT_EQ(pattern.d_hidden_nans + pattern.d_weight_nans + pattern.d_bias_nans, 0);
}

TEST(NonFinite, InOneRowOfHidden) {
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    SCOPED_TRACE(bad);
    const Pattern pattern = spoil_and_match([&](Inputs& inputs) { inputs.hidden.set(kBadRow, kBadColumn, bad); });
    // The statistics and gradients of that row are NaN, and so are values shared by all rows; other rows are
    // not.
    for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(pattern.rows[i], i == kBadRow);
    EXPECT_TRUE(pattern.loss);
    EXPECT_EQ(pattern.d_hidden_nans, 19);
    EXPECT_EQ(pattern.d_weight_nans, 150 * 19);
    EXPECT_EQ(pattern.d_bias_nans, 150);
  }
}

TEST(NonFinite, InAnIgnoredRowOfHidden) {
  InputSpec spec;
  spec.ignored = 0.3;  // hidden is already NaN there
  const Pattern pattern = spoil_and_match([](Inputs&) {}, spec);
  EXPECT_EQ(pattern.rows, std::vector<bool>(37, false));
  EXPECT_FALSE(pattern.loss);
  EXPECT_EQ(pattern.d_hidden_nans + pattern.d_weight_nans + pattern.d_bias_nans, 0);
}

TEST(NonFinite, NaNInTheHead) {
  const Pattern pattern = spoil_and_match([](Inputs& inputs) { inputs.set_weight(kBadId, kBadColumn, kNaN); });
  EXPECT_EQ(pattern.rows, std::vector<bool>(37, true));
  EXPECT_TRUE(pattern.loss);
  EXPECT_EQ(pattern.d_hidden_nans, 37 * 19);
  EXPECT_EQ(pattern.d_weight_nans, 150 * 19);
}

TEST(NonFinite, InfinityInTheHead) {
  for (const double bad : {kInfinity, -kInfinity}) {
    const Pattern pattern = spoil_and_match([&](Inputs& inputs) {
      inputs.set_weight(kBadId, kBadColumn, bad);
      // No row predicts the vocabulary entry whose logit is infinite, because its loss would be infinite.
      for (int64_t i = 0; i < 37; ++i) {
        if (inputs.targets.data()[i] == kBadId) inputs.targets.data()[i] = 0;
      }
    });
    // Rows with a logit of +inf are NaN, rows with a logit of -inf are not.
    const auto bad_rows = std::count(pattern.rows.begin(), pattern.rows.end(), true);
    EXPECT_GT(bad_rows, 0);
    EXPECT_LT(bad_rows, 37);
    EXPECT_TRUE(pattern.loss);
    // In good rows p = 0 is multiplied by the infinite weight, only in that column: 0 · ∞ = NaN.
    EXPECT_EQ(pattern.d_hidden_nans, bad_rows * 19 + (37 - bad_rows));
  }
}

TEST(NonFinite, InTheBias) {
  for (const double bad : {kNaN, kInfinity}) {
    const Pattern pattern = spoil_and_match([&](Inputs& inputs) { inputs.bias.set(0, kBadId, bad); });
    EXPECT_EQ(pattern.rows, std::vector<bool>(37, true));
    EXPECT_EQ(pattern.d_bias_nans, 150);
  }
  const Pattern masked = spoil_and_match([](Inputs& inputs) {
    inputs.bias.set(0, kBadId, -kInfinity);
    for (int64_t i = 0; i < 37; ++i) {
      if (inputs.targets.data()[i] == kBadId) inputs.targets.data()[i] = 0;
    }
  });
  EXPECT_EQ(masked.rows, std::vector<bool>(37, false));
  EXPECT_EQ(masked.d_hidden_nans + masked.d_weight_nans + masked.d_bias_nans, 0);
}

TEST(NonFinite, BesideAnAllIgnoredBatch) {
  InputSpec spec;
  spec.ignored = 1;
  const Pattern pattern = spoil_and_match(
      [](Inputs& inputs) {
        inputs.set_weight(kBadId, kBadColumn, kNaN);
        inputs.bias.set(0, 3, kInfinity);
      },
      spec);
  EXPECT_FALSE(pattern.loss);
  EXPECT_EQ(pattern.d_hidden_nans + pattern.d_weight_nans + pattern.d_bias_nans, 0);
}

TEST(NonFinite, OneLossATokenTellsWhichIsBad) {
  Inputs inputs{InputSpec()};
  inputs.hidden.set(kBadRow, kBadColumn, kNaN);
  CrossEntropy options;
  options.reduction = Reduction::kNone;
  const auto losses =
      cross_entropy(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options, {})
          .per_token_loss;
  for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(std::isnan(losses[i]), i == kBadRow) << i;
}

// Rows that the loss does not couple with the bad one keep their gradients.
TEST(NonFinite, InOneRowOfEveryTask) {
  constexpr int64_t kBad = 6;  // in the second sequence, which is paired with the fourth one
  FromHidden source;
  source.hidden[kBad * kHidden + 2] = std::numeric_limits<float>::quiet_NaN();
  const Batch batch;
  for (const PlanKind plan : kPlansOfGradients) {
    visit_every_task(source, batch, [&](const auto& task) {
      SCOPED_TRACE(std::string(task.name) + " " + name_of(plan));
      FromHidden::Outputs outputs;
      const auto result = task.run(Context(small_tiles(plan)), outputs.views());
      if constexpr (requires { result.loss; }) {
        EXPECT_TRUE(std::isnan(result.loss));
      }
      const bool of_batch = std::string(task.name).ends_with("of the batch");
      for (int64_t row = 0; row < kTokens && !of_batch; ++row) {
        const float got = outputs.values()[static_cast<size_t>(row * kHidden)];
        if (row == kBad) {
          EXPECT_TRUE(std::isnan(got));
        } else if (!task.couples_rows || row / kTime % 2 == 0) {
          EXPECT_TRUE(std::isfinite(got)) << row;
        }
      }
    });
  }
}

}  // namespace non_finite_test
}  // namespace logitless::testing
