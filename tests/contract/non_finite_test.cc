// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// NaN and infinities in the inputs: exactly the outputs that are NaN in the formulas become NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/calls.h"
#include "support/error_bounds.h"
#include "support/every_task.h"

namespace logitless::testing {
namespace non_finite_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBadRow = 20;  // in the second row tile
constexpr int64_t kBadId = 70;   // in the second vocabulary tile
constexpr int64_t kBadColumn = 4;

// The numbers of NaN in the outputs, according to float64.
struct Pattern {
  int64_t rows = 0;  ///< whose statistics are NaN
  bool loss = false;
  int64_t d_hidden = 0, d_weight = 0, d_bias = 0;
  bool operator==(const Pattern&) const = default;
};

int64_t count_nans(const Eigen::MatrixXd& values) { return values.array().isNaN().count(); }

// All statistics of a row are NaN, or none is.
void expect_nans_as_expected(const TokenStats& got, const Eigen::VectorXd& logp) {
  for (size_t i = 0; i < got.logp.size(); ++i) {
    SCOPED_TRACE(i);
    const bool undefined = std::isnan(logp[static_cast<int64_t>(i)]);
    for (const auto* const column : {&got.logp, &got.lse, &got.max_logit, &got.entropy, &got.cross}) {
      EXPECT_EQ(std::isnan((*column)[i]), undefined);
    }
    // An ignored row has no rank either.
    EXPECT_EQ(got.rank[i] == 0, undefined || got.logp[i] == 0);
  }
}

// Runs the call on inputs that `spoil` has changed, in every type, layout and plan. Compares with float64.
// Returns the numbers of NaN.
Pattern spoil_and_match(const std::function<void(Inputs&)>& spoil, double ignored = 0) {
  Pattern pattern;
  InputSpec spec;
  spec.ignored = ignored;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      spec.dtype = dtype;
      spec.layout = layout;
      Inputs inputs(spec);
      spoil(inputs);
      const std::string backend = Context().gemm_backend();
      const BoundedCrossEntropy element(inputs, backend, 8), mean(inputs, backend, 1);
      for (const std::string& target : simd_targets()) {
        for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << " " << name_of(plan) << " " << target);
          const Context context({.threads = 2, .plan = plan, .row_tile = 16, .vocab_tile = 64, .simd_target = target});
          GradientOutputs outputs(inputs, {});
          const auto result = cross_entropy(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                                            {}, outputs.gradients());
          EXPECT_EQ(std::isnan(result.loss), element.logp.hasNaN());
          expect_within(outputs, layout, element, mean);
          expect_nans_as_expected(compute_token_stats(context, inputs.hidden_view(), inputs.head_view(),
                                                      inputs.targets_view(), {}, {true, true, true, true}),
                                  element.logp);
        }
      }
      pattern = {count_nans(element.logp), element.logp.hasNaN(), count_nans(element.d_hidden().exact),
                 count_nans(element.d_weight().exact), count_nans(element.d_bias().exact)};
    }
  }
  return pattern;
}

// The loss of a row that predicts this entry would be infinite.
void predict_others(Inputs& inputs) {
  for (int64_t i = 0; i < 37; ++i) {
    if (inputs.targets.data()[i] == kBadId) inputs.targets.data()[i] = 0;
  }
}

TEST(NonFinite, OutputsAreNaNAsInTheFormulas) {
  struct Case {
    const char* what;
    std::function<void(Inputs&)> spoil;
    Pattern want;
    double ignored = 0;
  };
  const auto hidden = [](double bad) { return [bad](Inputs& inputs) { inputs.hidden.set(kBadRow, kBadColumn, bad); }; };
  const auto bias = [](double bad) { return [bad](Inputs& inputs) { inputs.bias.set(0, kBadId, bad); }; };
  const Pattern one_row = {1, true, 19, 150 * 19, 150}, all = {37, true, 37 * 19, 150 * 19, 150};
  const Case cases[] = {
      {"nothing", [](Inputs&) {}, {}},
      {"a NaN in a row of hidden", hidden(kNaN), one_row},
      {"+inf in a row of hidden", hidden(kInfinity), one_row},
      {"-inf in a row of hidden", hidden(-kInfinity), one_row},
      {"ignored rows, whose hidden is NaN", [](Inputs&) {}, {}, 0.3},
      {"a NaN in the head", [](Inputs& inputs) { inputs.set_weight(kBadId, kBadColumn, kNaN); }, all},
      {"a NaN in the bias", bias(kNaN), all},
      {"a NaN in the last entry's bias", [](Inputs& inputs) { inputs.bias.set(0, 149, kNaN); }, all},
      {"+inf in the bias", bias(kInfinity), all},
      {"-inf in the bias",
       [](Inputs& inputs) {
         inputs.bias.set(0, kBadId, -kInfinity);
         predict_others(inputs);
       },
       {}},
      {"only ignored rows",
       [](Inputs& inputs) {
         inputs.set_weight(kBadId, kBadColumn, kNaN);
         inputs.bias.set(0, 3, kInfinity);
       },
       {},
       1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    EXPECT_TRUE(spoil_and_match(one.spoil, one.ignored) == one.want);
  }
}

TEST(NonFinite, InfinityInTheHead) {
  for (const double bad : {kInfinity, -kInfinity}) {
    const Pattern pattern = spoil_and_match([&](Inputs& inputs) {
      inputs.set_weight(kBadId, kBadColumn, bad);
      predict_others(inputs);
    });
    // Rows with a logit of +inf are NaN, rows with a logit of -inf are not.
    EXPECT_GT(pattern.rows, 0);
    EXPECT_LT(pattern.rows, 37);
    EXPECT_TRUE(pattern.loss);
    // In good rows p = 0 is multiplied by the infinite weight, only in that column: 0 · ∞ = NaN.
    EXPECT_EQ(pattern.d_hidden, pattern.rows * 19 + (37 - pattern.rows));
  }
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
      if constexpr (requires { result.per_token_loss; }) {
        for (size_t i = 0; i < result.per_token_loss.size() && !task.couples_rows; ++i) {
          EXPECT_EQ(std::isnan(result.per_token_loss[i]), i == kBad) << i;
        }
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

// A row with weight 0 has no gradient, and is not multiplied: its states would spread through d_weight.
TEST(NonFinite, InARowWithTokenWeight0) {
  constexpr size_t kBad = 6;
  FromHidden source;
  source.hidden[kBad * kHidden + 2] = std::numeric_limits<float>::quiet_NaN();
  const Batch batch;
  const auto has_only = [](const std::vector<float>& values, const auto& holds) {
    return std::all_of(values.begin(), values.end(), holds);
  };
  const auto run = [&](const auto& task, PlanKind plan, MeanOver mean_over, const std::vector<double>& weights) {
    auto weighted = task;
    weighted.options.token_weights = weights;
    if (weighted.options.reduction == Reduction::kMean) weighted.options.mean_over = mean_over;
    FromHidden::Outputs outputs;
    const auto result = weighted.run(Context(small_tiles(plan)), outputs.views());
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_EQ(result.per_token_loss[kBad], 0);
    EXPECT_TRUE(has_only(outputs.values(), [](float value) { return std::isfinite(value); }));
    return std::pair(result.loss, outputs.values());
  };
  std::vector<double> weights(kTokens, 1.5);
  weights[kBad] = 0;
  for (const PlanKind plan : kPlansOfGradients) {
    visit_every_task(source, batch, [&](const auto& task) {
      if constexpr (requires { task.options.token_weights; }) {
        SCOPED_TRACE(std::string(task.name) + " " + name_of(plan));
        run(task, plan, MeanOver::kTokens, weights);
        for (const MeanOver mean_over : {MeanOver::kTokens, MeanOver::kTokenWeights}) {
          const auto [loss, gradients] = run(task, plan, mean_over, std::vector<double>(kTokens, 0));
          EXPECT_EQ(loss, 0);
          EXPECT_TRUE(has_only(gradients, [](float value) { return value == 0; }));
        }
      }
    });
  }
}

}  // namespace non_finite_test
}  // namespace logitless::testing
