// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cases that need their own data: logits beyond 32-bit indices, losses that break their contract, numbers
// that do not fit, batches without sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "logitless/logitless.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace edge_cases_test {

// 8,200 × 262,147 logits are more than 2³¹. Rows repeat four states and four targets, so they have the
// results of a call with these four rows.
TEST(LargeIndices, LogitsBeyond31Bits) {
  constexpr int64_t kTokens = 8200, kVocab = 262147, kHidden = 2, kKinds = 4;
  static_assert(kTokens * kVocab > int64_t{1} << 31);
  const float states[] = {1.0F, -0.5F, 0.25F, 2.0F, -1.5F, 0.75F, 3.0F, 0.125F};
  const int64_t ids[kKinds] = {0, kVocab - 1, 131072, 262144};
  std::vector<double> weight(kVocab * kHidden);
  for (size_t k = 0; k < weight.size(); ++k) weight[k] = static_cast<double>(k % 1013) / 256 - 2;
  const auto run_rows = [&]<class F>(F, int64_t rows, std::vector<F>& d_hidden) {
    const std::vector<F> head(weight.begin(), weight.end());
    std::vector<F> hidden;
    std::vector<int64_t> targets;
    for (int64_t i = 0; i < rows; ++i) {
      hidden.insert(hidden.end(), states + i % kKinds * kHidden, states + (i % kKinds + 1) * kHidden);
      targets.push_back(ids[i % kKinds]);
    }
    d_hidden.assign(hidden.size(), NAN);
    const CrossEntropy task = {.targets = targets, .reduction = Reduction::kNone};
    return run(Context({.plan = PlanKind::kTwoPass}),
               Logits::of(view(hidden.data(), {rows, kHidden}), {.weight = view(head.data(), {kVocab, kHidden})}), task,
               {.d_hidden = view(d_hidden.data(), {rows, kHidden})})
        .per_token_loss;
  };
  std::vector<float> d_hidden;
  std::vector<double> truth;
  const std::vector<double> losses = run_rows(0.0F, kTokens, d_hidden), wanted = run_rows(0.0, kKinds, truth);
  // Logits have two terms of at most 6 each, so their error is 24 eps. A token's loss has twice that error,
  // and a few ulp of its own size. The error of d_hidden is Σ_v |δ(p_v)| |w_v| with |δp| <= p (2 δa + 32 eps
  // (1 + |log p|)), Σ p = 1, |log p| < 24 and |w| <= 2, and the error of a sum over 257 tiles of at most
  // 1024 terms, whose absolute values sum to at most 4.
  const double eps = std::numeric_limits<float>::epsilon(), logit_error = 24 * eps;
  const double bound = 2 * (2 * logit_error + 32 * eps * 25) + 4 * (257 + 1024) * eps;
  for (size_t i = 0; i < losses.size(); ++i) {
    ASSERT_NEAR(losses[i], wanted[i % kKinds], 2 * logit_error + 64 * eps) << i;
    for (size_t h = 0; h < kHidden; ++h) {
      ASSERT_NEAR(d_hidden[i * kHidden + h], truth[i % kKinds * kHidden + h], bound) << i;
    }
  }
}

/// Six tokens and five vocabulary entries.
struct SmallCase {
  std::vector<float> hidden = std::vector<float>(24), weight = std::vector<float>(20);
  std::vector<float> d_hidden = std::vector<float>(24, NAN), d_weight = std::vector<float>(20, NAN);
  std::vector<int32_t> targets = {0, 1, 2, 3, 4, 0};

  SmallCase() {
    for (size_t k = 0; k < hidden.size(); ++k) hidden[k] = std::sin(static_cast<float>(k));
    for (size_t k = 0; k < weight.size(); ++k) weight[k] = std::cos(static_cast<float>(2 * k));
  }
  Logits logits() const { return Logits::of(view(hidden.data(), {6, 4}), {.weight = view(weight.data(), {5, 4})}); }
  logitless::Gradients gradients() {
    return {.d_hidden = view(d_hidden.data(), {6, 4}), .d_weight = view(d_weight.data(), {5, 4})};
  }
};

class MadeUpLoss final : public TokenLoss {
 public:
  bool promises = false;  // whether it promises that no row is dropped
  GradsFilled filled = {};
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return filled; }
  bool may_drop_rows() const override { return !promises; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      grads.logp[static_cast<size_t>(row)] = row % 2 == 0 ? -1 : 0;
      if (filled.entropy) grads.entropy[static_cast<size_t>(row)] = -0.5;
    }
  }
};

TEST(TokenLossContract, DroppingRowsThatWerePromisedIsALogicError) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SmallCase small;
    MadeUpLoss loss;
    const CustomLoss task = {small.targets, {}, &loss};
    loss.promises = true;
    EXPECT_THROW(run(Context({.plan = plan}), small.logits(), task, small.gradients()), std::logic_error);
    loss.promises = false;
    run(Context({.plan = plan}), small.logits(), task, small.gradients());
    for (size_t k = 0; k < 24; ++k) EXPECT_EQ(small.d_hidden[k] == 0, k / 4 % 2 == 1) << k;
  }
}

TEST(TokenLossContract, GradientsBringTheirStatisticsOrNeedATeacher) {
  SmallCase small;
  MadeUpLoss loss;
  const CustomLoss task = {small.targets, {}, &loss};
  loss.filled.divergence = true;
  expect_invalid_input({"a gradient of the divergence", "no teacher"},
                       [&] { run(Context(), small.logits(), task, small.gradients()); });
  for (const float x : small.d_hidden) EXPECT_TRUE(std::isnan(x));
  loss.filled = {.entropy = true};
  EXPECT_EQ(run(Context(), small.logits(), task, small.gradients()).stats.entropy.size(), 6U);
}

TEST(CrossEntropyUpstream, AZeroDropsANaNRowWithZLossToo) {
  SmallCase small;
  small.hidden[5 * 4] = NAN;
  const CrossEntropy task = {.targets = small.targets, .reduction = Reduction::kNone, .z_loss = 1e-4};
  const Forward<CrossEntropy> left = forward(Context(), small.logits(), task);
  EXPECT_TRUE(std::isnan(left.result.per_token_loss[5]));
  const std::vector<double> upstream = {1, 1, 1, 1, 1, 0};
  backward(Context(), small.logits(), task, left, upstream, small.gradients());
  for (const float x : small.d_weight) EXPECT_TRUE(std::isfinite(x));
  for (size_t k = 0; k < 24; ++k) EXPECT_TRUE(k >= 20 ? small.d_hidden[k] == 0 : std::isfinite(small.d_hidden[k])) << k;
}

TEST(CrossEntropyUpstream, IsNotReadWhereTheTokenIsIgnored) {
  SmallCase usual, small;
  for (SmallCase* const one : {&usual, &small}) {
    one->targets[5] = -100;
    const CrossEntropy task = {.targets = one->targets, .reduction = Reduction::kNone};
    const std::vector<double> upstream = {1, 1, 1, 1, 1, one == &small ? NAN : 1.0};
    backward(Context(), one->logits(), task, forward(Context(), one->logits(), task), upstream, one->gradients());
  }
  EXPECT_EQ(small.d_hidden, usual.d_hidden);
  EXPECT_EQ(small.d_weight, usual.d_weight);
}

// dft's factor is a probability, which may be 0. That token then has no gradient, and the others keep theirs.
TEST(CrossEntropyDft, OfATokenThatCannotOccur) {
  for (const PlanKind plan : {PlanKind::kTwoPass, PlanKind::kOnePass, PlanKind::kExpectedRow}) {
    SmallCase small, usual;
    std::vector<float> bias = {0, 0, 0, 0, -INFINITY};
    const auto d_hidden = [&](SmallCase& of) {
      Logits logits = of.logits();
      logits.head.bias = bias;
      const CrossEntropy task = {.targets = of.targets, .reduction = Reduction::kSum, .dft = true};
      run(Context({.plan = plan}), logits, task, {.d_hidden = view(of.d_hidden.data(), {6, 4})});
      return of.d_hidden;
    };
    usual.targets[4] = 1;
    const std::vector<float> got = d_hidden(small), want = d_hidden(usual);
    for (size_t k = 0; k < 24; ++k) EXPECT_EQ(got[k], k / 4 == 4 ? 0 : want[k]) << name_of(plan) << " " << k;
  }
}

TEST(Scales, ThatAreNoNormalNumbersOfTheSumsAreRefused) {
  SmallCase small;
  for (const double bad : {1e-50, 1e39, 1e300}) {
    Logits capped = small.logits();
    capped.head.softcap = bad;
    EXPECT_THROW(run(Context(), capped, CrossEntropy{.targets = small.targets}), InvalidInput) << bad;
    CrossEntropy hot = {.targets = small.targets};
    hot.token.temperature = bad;
    EXPECT_THROW(run(Context(), small.logits(), hot), InvalidInput) << bad;
  }
}

// A single wide tile would leave all threads except one idle.
TEST(SmallCalls, HaveTilesForSeveralThreads) {
  const auto tiles = [](int64_t tokens, int64_t vocab) {
    const std::vector<float> hidden(static_cast<size_t>(tokens)), weight(static_cast<size_t>(vocab));
    const std::vector<int32_t> targets(static_cast<size_t>(tokens));
    const Plan made =
        plan(Context(), Logits::of(view(hidden.data(), {tokens, 1}), {.weight = view(weight.data(), {vocab, 1})}),
             CrossEntropy{.targets = targets});
    const auto pieces = [](int64_t all, int64_t of) { return (all + of - 1) / of; };
    return pieces(tokens, made.row_tile) * pieces(vocab, made.vocab_tile);
  };
  EXPECT_EQ(tiles(100, 500), 1);  // too narrow to be cut
  EXPECT_GE(tiles(1, 4000), 4);
  EXPECT_GE(tiles(100, 4000), 4);
  EXPECT_GE(tiles(600, 2000), 6);
  EXPECT_GE(tiles(100, 30000), 8);
}

TEST(EmptyBatch, OfNoSequencesIsLegal) {
  const SmallCase small;
  Logits logits = small.logits();
  logits.hidden = view(small.hidden.data(), {0, 3, 4});
  const CrossEntropyResult result = run(Context(), logits, CrossEntropy{.targets = view(small.targets.data(), {0, 3})});
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.plan.describe(), "forward_only: no active rows");
}

}  // namespace edge_cases_test
}  // namespace logitless::testing
