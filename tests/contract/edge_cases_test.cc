// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cases that need their own data: logits beyond 32-bit indices, means over nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "logitless/logitless.h"
#include "support/calls.h"
#include "support/problem.h"
#include "support/refusal.h"
#include "support/views.h"

namespace logitless::testing {
namespace edge_cases_test {

// 8,200 × 262,147 logits are more than 2³¹. Rows repeat four states and four targets, so that four reference
// rows suffice.
TEST(LargeIndices, LogitsBeyond31Bits) {
  constexpr int64_t kTokens = 8200, kVocab = 262147, kHidden = 2, kKinds = 4;
  static_assert(kTokens * kVocab > int64_t{1} << 31);
  const float states[kKinds][kHidden] = {{1.0f, -0.5f}, {0.25f, 2.0f}, {-1.5f, 0.75f}, {3.0f, 0.125f}};
  const int64_t ids[kKinds] = {0, kVocab - 1, 131072, 262144};
  std::vector<float> hidden(kTokens * kHidden), weight(kVocab * kHidden), d_hidden(hidden.size(), NAN);
  std::vector<int64_t> targets(kTokens);
  for (int64_t i = 0; i < kTokens; ++i) {
    for (int64_t h = 0; h < kHidden; ++h) hidden[static_cast<size_t>(i * kHidden + h)] = states[i % kKinds][h];
    targets[static_cast<size_t>(i)] = ids[i % kKinds];
  }
  for (size_t k = 0; k < weight.size(); ++k) weight[k] = static_cast<float>(k % 1013) / 256 - 2;

  const LmHead head({weight.data(), kVocab, kHidden}, HeadLayout::kVocabHidden);
  CrossEntropy options;
  options.reduction = Reduction::kNone;
  ContextOptions run;
  run.plan = PlanKind::kTwoPass;
  Gradients gradients;
  gradients.d_hidden = {d_hidden.data(), kTokens, kHidden};
  const CrossEntropyResult got = cross_entropy(Context(run), ConstMatrix(hidden.data(), kTokens, kHidden), head,
                                               std::span<const int64_t>(targets), options, gradients);

  const oracle::Problem problem =
      oracle::read_problem(ConstMatrix(hidden.data(), kKinds, kHidden), head, Targets(targets.data(), kKinds), options);
  const oracle::Statistics stats = oracle::compute_statistics(problem);
  const oracle::Loss loss = oracle::compute_cross_entropy(problem, stats, options, {});
  const oracle::ParameterGradients want =
      oracle::compute_parameter_gradients(problem, oracle::compute_logit_gradients(problem, stats, loss.grads).d_raw);
  // Logits have two terms of at most 6 each, so their error is 24 eps. A token's loss has twice that error,
  // and a few ulp of its own size.
  const double eps = std::numeric_limits<float>::epsilon();
  const double logit_error = 24 * eps;
  for (int64_t i = 0; i < kTokens; ++i) {
    const auto kind = static_cast<size_t>(i % kKinds);
    ASSERT_TRUE(std::abs(got.per_token_loss[static_cast<size_t>(i)] - loss.per_token_loss[kind]) <=
                2 * logit_error + 64 * eps)
        << i << ": " << got.per_token_loss[static_cast<size_t>(i)] << ", not " << loss.per_token_loss[kind];
    for (int64_t h = 0; h < kHidden; ++h) {
      // Σ_v |δ(p_v)| |w_v| with |δp| <= p (2 δa + 32 eps (1 + |log p|)), Σ p = 1, |log p| < 24 and |w| <= 2,
      // and a sum over 257 tiles of at most 1024 terms, whose absolute values sum to at most 4.
      const double bound = 2 * (2 * logit_error + 32 * eps * 25) + 4 * (257 + 1024) * eps;
      ASSERT_TRUE(std::abs(d_hidden[static_cast<size_t>(i * kHidden + h)] -
                           want.d_hidden(static_cast<int64_t>(kind), h)) <= bound)
          << i;
    }
  }
}

/// Six tokens, five vocabulary entries, and a test's own loss.
struct SmallCase {
  std::vector<float> hidden = std::vector<float>(24, 0.5f), weight = std::vector<float>(20, 0.25f);
  std::vector<float> d_hidden = std::vector<float>(24, NAN), d_weight = std::vector<float>(20, NAN);
  std::vector<int32_t> targets = {0, 1, 2, 3, 4, 0};

  SmallCase() {
    for (size_t k = 0; k < hidden.size(); ++k) hidden[k] = std::sin(static_cast<float>(k));
    for (size_t k = 0; k < weight.size(); ++k) weight[k] = std::cos(static_cast<float>(2 * k));
  }
  HiddenStates states() const { return ConstMatrix(hidden.data(), 6, 4); }
  LmHead head() const { return LmHead({weight.data(), 5, 4}, HeadLayout::kVocabHidden); }
  Targets ids() const { return std::span<const int32_t>(targets); }
  Gradients gradients() {
    Gradients out;
    out.d_hidden = {d_hidden.data(), 6, 4};
    out.d_weight = {d_weight.data(), 5, 4};
    return out;
  }
};

Context context_of(PlanKind plan) {
  ContextOptions options;
  options.plan = plan;
  return Context(options);
}

class MadeUpLoss final : public TokenLoss {
 public:
  bool promises = false;  // whether it promises that no row is dropped
  bool entropy = false, divergence = false;
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {.entropy = entropy, .divergence = divergence}; }
  bool may_drop_rows() const override { return !promises; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) {
      grads.logp[static_cast<size_t>(row)] = row % 2 == 0 ? -1 : 0;
      if (entropy) grads.entropy[static_cast<size_t>(row)] = -0.5;
    }
  }
};

// dft's factor is a probability, which may be 0. That token then has no gradient, and the others keep theirs.
TEST(CrossEntropyDft, OfATokenThatCannotOccur) {
  constexpr int64_t kTokens = 20, kHidden = 3, kVocab = 50;
  std::vector<float> hidden(kTokens * kHidden), weight(kVocab * kHidden), bias(kVocab, 0.0F);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<float>(i % 7) / 4 - 1;
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 11) / 8 - 0.5F;
  bias[7] = -std::numeric_limits<float>::infinity();
  std::vector<int64_t> targets(kTokens, 3);
  targets[4] = 7;
  LmHead head({weight.data(), kVocab, kHidden}, HeadLayout::kVocabHidden);
  head.bias = {bias.data(), kVocab};
  CrossEntropy options;
  options.dft = true;
  std::vector<std::vector<float>> all;
  for (const PlanKind plan : {PlanKind::kTwoPass, PlanKind::kOnePass, PlanKind::kExpectedRow}) {
    std::vector<float>& d_hidden = all.emplace_back(hidden.size(), NAN);
    Gradients gradients;
    gradients.d_hidden = {d_hidden.data(), kTokens, kHidden};
    cross_entropy(Context({.plan = plan, .row_tile = 4, .vocab_tile = 16}),
                  ConstMatrix(hidden.data(), kTokens, kHidden), head, std::span<const int64_t>(targets), options,
                  gradients);
    for (size_t i = 0; i < hidden.size(); ++i) {
      EXPECT_NEAR(d_hidden[i], all[0][i], 1e-6) << name_of(plan) << " " << i;
      if (i / kHidden == 4) {
        EXPECT_EQ(d_hidden[i], 0) << name_of(plan);
      }
    }
  }
}

TEST(TokenLossContract, DroppingRowsThatWerePromisedIsALogicError) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    SmallCase small;
    MadeUpLoss loss;
    loss.promises = true;
    EXPECT_THROW(
        run_token_loss(context_of(plan), small.states(), small.head(), small.ids(), {}, loss, small.gradients()),
        std::logic_error);
    loss.promises = false;
    run_token_loss(context_of(plan), small.states(), small.head(), small.ids(), {}, loss, small.gradients());
    for (size_t k = 0; k < 24; ++k) EXPECT_EQ(small.d_hidden[k] == 0, k / 4 % 2 == 1) << k;
  }
}

TEST(TokenLossContract, ADivergenceNeedsATeacher) {
  SmallCase small;
  MadeUpLoss loss;
  loss.divergence = true;
  expect_invalid_input({"a gradient of the divergence", "no teacher"}, [&] {
    run_token_loss(Context(), small.states(), small.head(), small.ids(), {}, loss, small.gradients());
  });
  for (const float x : small.d_hidden) EXPECT_TRUE(std::isnan(x));
}

TEST(TokenLossContract, AnEntropyGradientBringsTheEntropyAlong) {
  SmallCase small;
  MadeUpLoss loss;
  loss.entropy = true;
  const TokenStats stats =
      run_token_loss(Context(), small.states(), small.head(), small.ids(), {}, loss, small.gradients());
  EXPECT_EQ(stats.entropy.size(), 6u);
  for (const float x : small.d_hidden) EXPECT_TRUE(std::isfinite(x));
}

TEST(CrossEntropyUpstream, AZeroDropsANaNRowWithZLossToo) {
  SmallCase small;
  small.hidden[5 * 4] = NAN;
  CrossEntropy options;
  options.reduction = Reduction::kNone;
  options.z_loss = 1e-4;
  const Forward<CrossEntropy> forward =
      cross_entropy.forward(Context(), small.states(), small.head(), small.ids(), options);
  EXPECT_TRUE(std::isnan(forward.result.per_token_loss[5]));
  const std::vector<double> upstream = {1, 1, 1, 1, 1, 0};
  cross_entropy.backward(Context(), small.states(), small.head(), small.ids(), options, forward,
                         std::span<const double>(upstream), small.gradients());
  for (const float x : small.d_weight) EXPECT_TRUE(std::isfinite(x));
  for (size_t k = 0; k < 24; ++k) EXPECT_TRUE(k >= 20 ? small.d_hidden[k] == 0 : std::isfinite(small.d_hidden[k])) << k;
}

TEST(Scales, ThatAreNoNormalNumbersOfTheSumsAreRefused) {
  SmallCase small;
  for (const double bad : {1e-50, 1e39, 1e300}) {
    LmHead head = small.head();
    head.softcap = bad;
    EXPECT_THROW(cross_entropy(Context(), small.states(), head, small.ids()), InvalidInput) << bad;
    CrossEntropy options;
    options.token.temperature = bad;
    EXPECT_THROW(cross_entropy(Context(), small.states(), small.head(), small.ids(), options), InvalidInput) << bad;
  }
}

// A single wide tile would leave all threads except one idle.
TEST(SmallCalls, HaveTilesForSeveralThreads) {
  const auto tiles = [](int64_t tokens, int64_t vocab) {
    const std::vector<float> hidden(static_cast<size_t>(tokens)), weight(static_cast<size_t>(vocab));
    const std::vector<int32_t> targets(static_cast<size_t>(tokens));
    const Plan plan = cross_entropy.plan(Context(), ConstMatrix(hidden.data(), tokens, 1),
                                         LmHead({weight.data(), vocab, 1}, HeadLayout::kVocabHidden),
                                         std::span<const int32_t>(targets));
    const auto pieces = [](int64_t all, int64_t of) { return (all + of - 1) / of; };
    return pieces(tokens, plan.row_tile) * pieces(vocab, plan.vocab_tile);
  };
  EXPECT_EQ(tiles(100, 500), 1);  // too narrow to be cut
  EXPECT_GE(tiles(1, 4000), 4);
  EXPECT_GE(tiles(100, 4000), 4);
  EXPECT_GE(tiles(600, 2000), 6);
  EXPECT_GE(tiles(100, 30000), 8);
}

TEST(EmptyBatch, OfNoSequencesIsLegal) {
  SmallCase small;
  const HiddenStates none(ConstMatrix(small.hidden.data(), 0, 4), 0);
  const CrossEntropyResult result = cross_entropy(Context(), none, small.head(), Targets(small.targets.data(), 0));
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.plan.describe(), "forward_only: no active rows");
}

}  // namespace edge_cases_test
}  // namespace logitless::testing
