// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks to the last tie: whole-numbered hidden states and heads, whose logits every type and every GEMM gets
// exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/logits_tester.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr StatsRequest kRank = {.argmax = true, .rank = true};

// A loss that takes part in nothing but the plan: all rows get a gradient.
class RankedLoss final : public TokenLoss {
 public:
  StatsRequest needs() const override { return kRank; }
  GradsFilled gradients() const override { return {}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      seen.push_back(stats.rank[static_cast<size_t>(row)]);
      grads.logp[static_cast<size_t>(row)] = 1;
    }
  }
  std::vector<int64_t> seen;
};

class RankTester : public Tester<RankTester> {
 public:
  /// Compares every call that gives ranks with the oracle's, without any tolerance.
  void matches_oracle() {
    SCOPED_TRACE(describe());
    Inputs inputs = whole_inputs();
    HostArray<double> temperatures;
    const TokenOptions options = token_options(temperatures);
    const oracle::Statistics truth = oracle::compute_statistics(
        oracle::read_problem(inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options));
    const TokenStats stats =
        compute_token_stats(context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options, kRank);
    EXPECT_EQ(stats.rank, truth.rank);
    EXPECT_EQ(stats.argmax, truth.argmax);
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      ContextOptions in_plan = run_.context;
      in_plan.plan = plan;
      GradientOutputs outputs(inputs, run_);
      RankedLoss loss;
      const TokenStats of_loss = run_token_loss(Context(in_plan), inputs.hidden_view(), inputs.head_view(),
                                                inputs.targets_view(), options, loss, outputs.gradients());
      EXPECT_EQ(of_loss.rank, truth.rank) << name_of(plan);
      EXPECT_EQ(std::count(loss.seen.begin(), loss.seen.end(), 0), 0) << "evaluated before it was ranked";
    }
  }

 private:
  // Logits are sums of `hidden` products from -4 to 4, and a bias from -3 to 3: many ties.
  Inputs whole_inputs() const {
    Inputs inputs(spec_);
    const auto whole = [](double value, double most) { return std::clamp(std::round(value), -most, most); };
    for (HostTensor* tensor : {&inputs.hidden, &inputs.weight, &inputs.bias}) {
      const double most = tensor == &inputs.bias ? 3 : 2;
      for (int64_t r = 0; r < tensor->rows(); ++r) {
        for (int64_t c = 0; c < tensor->cols(); ++c) {
          if (!std::isnan(tensor->get(r, c))) tensor->set(r, c, whole(tensor->get(r, c), most));
        }
      }
    }
    return inputs;
  }
  void forget() override {}
};

RankTester small() { return RankTester().tiles(16, 64).threads(2); }

TEST(Rank, EveryTypeAndLayout) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      RankTester tester = small().dtype(dtype).layout(layout);
      tester.matches_oracle();
      tester.bias(false).padding(3).ignored(0.3).matches_oracle();
      tester.tokens(40).batch(5).shift().matches_oracle();
    }
  }
}

TEST(Rank, EveryInstructionSet) {
  for (const std::string& target : simd_targets()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64})
      small().dtype(dtype).simd_target(target).matches_oracle();
    small().softcap(30).simd_target(target).matches_oracle();
  }
}

TEST(Rank, VocabulariesAroundTileEdges) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 128, 199, 2049}) {
    for (const int64_t tokens : {1, 16, 17, 33}) {
      small().vocab(vocab).tokens(tokens).matches_oracle();
      small().vocab(vocab).tokens(tokens).tiles(0, 0).matches_oracle();
    }
  }
  // Targets on both sides of each tile's edge.
  small().vocab(3 * 64 + 7).targets({0, 63, 64, 127, 128, 191, 192, 198}).matches_oracle();
}

TEST(Rank, EveryOption) {
  small().temperatures().matches_oracle();
  small().temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp).matches_oracle();
  // Capped logits tie where raw ones do: no column's tanh may depend on where it stands in a vector.
  for (const DType dtype : kDTypes) small().dtype(dtype).vocab(203).softcap(30).matches_oracle();
  // Sums of 600 products reach hundreds, where bfloat16 keeps even numbers alone: new ties.
  small().hidden(600).matches_oracle();
  small().hidden(600).round_to(DType::kBFloat16).matches_oracle();
  small().hidden(600).round_to(DType::kFloat16).matches_oracle();
}

TEST(Rank, EveryNumberOfThreadsAndBudget) {
  for (const int threads : {1, 2, 3, 7}) {
    small().tokens(131).vocab(517).threads(threads).matches_oracle();
    small().tokens(131).vocab(517).threads(threads).workspace(size_t{200} << 10).matches_oracle();
  }
}

TEST(Rank, EmptyAndIgnoredBatches) {
  small().tokens(0).matches_oracle();
  small().ignored(1).matches_oracle();
}

// Nothing is larger than the largest, in any arithmetic: the second walk must see the bits of the first.
TEST(Rank, TheEntryWithTheLargestLogitIsFirst) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int64_t row_tile : {0, 16, 48}) {
        InputSpec spec;
        spec.dtype = dtype;
        spec.layout = layout;
        spec.tokens = 131;
        spec.hidden = 333;
        spec.vocab = 1003;
        spec.ignored = 0.2;  // gathers rows
        spec.softcap = row_tile == 48 ? 20 : 0;
        Inputs inputs(spec);
        ContextOptions options;
        options.threads = 3;
        options.row_tile = row_tile;
        options.vocab_tile = row_tile * 7;
        const Context context(options);
        const auto stats = [&] {
          return compute_token_stats(context, inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {},
                                     kRank);
        };
        const std::vector<int64_t> best = stats().argmax;
        for (int64_t i = 0; i < spec.tokens; ++i) inputs.targets.data()[i] = best[i] < 0 ? spec.ignore_index : best[i];
        const std::vector<int64_t> rank = stats().rank;
        for (int64_t i = 0; i < spec.tokens; ++i) EXPECT_EQ(rank[i], best[i] < 0 ? 0 : 1) << i;
      }
    }
  }
}

TEST(Rank, OfLogitsThatTheCallerHolds) {
  // Row by row: the only largest, all equal, two above, a masked target, nothing but masks, a NaN, +inf,
  // ignored.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> logits = {1,    2,    3,    0,    5, 5,   5, 5, 9, 4, 7,   4, -inf, 2, -inf, 1,
                                     -inf, -inf, -inf, -inf, 1, nan, 2, 3, 1, 2, inf, 3, 1,    2, 3,    4};
  const std::vector<int64_t> targets = {2, 3, 1, 0, 1, 0, 0, -100};
  ContextOptions options;
  options.vocab_tile = 3;
  for (const std::string& target : simd_targets()) {
    options.simd_target = target;
    const TokenStats stats = compute_token_stats(Context(options), FinishedLogits(logits.data(), 1, 8, 4),
                                                 Targets(std::span(targets)), {}, {.rank = true});
    EXPECT_EQ(stats.rank, (std::vector<int64_t>{1, 1, 3, 3, 0, 0, 0, 0})) << target;
  }
}

TEST(Rank, WhoDoesNotAskDoesNotPay) {
  InputSpec spec;
  const Inputs inputs(spec);
  const auto workspace = [&](StatsRequest request) {
    Plan plan;
    compute_token_stats(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, request, &plan);
    return plan.workspace_bytes;
  };
  EXPECT_EQ(workspace({true, true, true}), workspace({}));
  EXPECT_GT(workspace(kRank), workspace({}));
}

}  // namespace
}  // namespace logitless::testing
