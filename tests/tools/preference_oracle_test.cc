// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the oracle of the preference losses with numbers worked out by hand and with its own finite
// differences.
#include "oracle/preference_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/preference_cases.h"

namespace logitless::testing {
namespace preference_oracle_test {

using oracle::compute_kto;
using oracle::compute_preference;
using oracle::SequenceBatch;

constexpr double kStep = 1e-5;

// Compares `d_logp` with central differences of `loss` by every token. Their error is h² / 6 times the third
// derivative, here below 1e-6 of the largest slope (of discopop with tau 0.05, by far the most curved), plus
// the rounding error u |loss| / h.
void expect_derivatives(SequenceBatch batch, const std::vector<double>& d_logp,
                        const std::function<double(const SequenceBatch&)>& loss) {
  batch.held_logp = batch.logp;
  double largest = 1e-3;
  for (const double slope : d_logp) largest = std::max(largest, std::abs(slope));
  const double tolerance = 1e-6 * largest + 1e-10 * std::abs(loss(batch));
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const double at = batch.logp[i];
    batch.logp[i] = at + kStep;
    const double above = loss(batch);
    batch.logp[i] = at - kStep;
    const double below = loss(batch);
    batch.logp[i] = at;
    EXPECT_NEAR(d_logp[i], (above - below) / (2 * kStep), tolerance) << "token " << i;
  }
}

TEST(PreferenceOracle, DerivativesOfEveryLossAndOption) {
  const SequenceBatch batch = random_batch({5, 3, 1, 7, 4, 6, 2, 3}, 11);
  for (const PreferenceCase& one : preference_cases()) {
    SCOPED_TRACE(one.name);
    ASSERT_GT(oracle::distance_from_kinks(batch, one.options), 10 * kStep);
    expect_derivatives(batch, compute_preference(batch, one.options).d_logp,
                       [&](const SequenceBatch& moved) { return compute_preference(moved, one.options).loss; });
  }
}

TEST(PreferenceOracle, DerivativesOfKto) {
  const SequenceBatch batch = random_batch({5, 0, 3, 1, 7, 4}, 12);
  for (const KtoCase& one : kto_cases()) {
    SCOPED_TRACE(one.name);
    expect_derivatives(batch, compute_kto(kto_input(batch, one), one.options).d_logp, [&](const SequenceBatch& moved) {
      return compute_kto(kto_input(moved, one), one.options).loss;
    });
  }
}

TEST(PreferenceOracle, HingeHasNoSlopeAtItsKink) {
  PreferenceLoss options = options_of(PreferenceLossType::kHinge);
  options.beta = 0.5;
  for (const auto& [chosen, slope] : std::vector<std::pair<double, double>>{{-1, 0}, {-1.25, -0.5}, {-0.75, 0}}) {
    // 1 - 0.5 (chosen + 3)
    const oracle::PreferenceTruth truth = compute_preference(one_token_batch({chosen, -3}, {0, 0}), options);
    EXPECT_EQ(truth.d_logp[0], slope);
    EXPECT_EQ(truth.d_logp[1], -slope);
    EXPECT_EQ(truth.loss, std::max(0.0, 1 - 0.5 * (chosen + 3)));
  }
}

TEST(PreferenceOracle, OrpoIsFiniteAtCertainty) {
  const PreferenceLoss options = options_of(PreferenceLossType::kOrpo);
  const auto truth_at = [&](double c) { return compute_preference(one_token_batch({c, -1}, {}), options); };
  const oracle::PreferenceTruth edge = truth_at(-0x1p-24);
  for (const double c : {0.0, -1e-12, -0x1p-25}) {
    // 1 - e^x equals its value at the edge, so only the slopes of the likelihood and of the odds remain.
    EXPECT_NEAR(truth_at(c).loss, edge.loss, 2 * 0x1p-24);
    EXPECT_NEAR(truth_at(c).d_logp[0], edge.d_logp[0], std::abs(edge.d_logp[0]) * 1e-6);
  }
  // d lambda / dc = 1 / (1 - e^c) = 2^24, and sigma(-lambda) = 1 / (1 + e^lambda) with e^lambda = about 2^24
  // (e - 1).
  EXPECT_NEAR(edge.d_logp[0], -1 - 0.1 / (std::exp(1) - 1), 1e-6);
}

TEST(PreferenceOracle, AotSortsAndKeepsTheOrderOfEqualValues) {
  // c - r: 1, 3, 1; c⁰ - r⁰: 0, 2, -1. Sorted: 1 (pair 0), 1 (pair 2), 3 (pair 1) against -1, 0, 2: D = 2, 1,
  // 1.
  const SequenceBatch batch = one_token_batch({-1, -1, -3, -2, -4, -4}, {-2, -1, -3, -2, -3, -2});
  PreferenceLoss options = options_of(PreferenceLossType::kAot);
  options.beta = 1;
  const auto s = [](double x) { return 1 / (1 + std::exp(-x)); };
  const oracle::PreferenceTruth paired = compute_preference(batch, options);
  EXPECT_NEAR(paired.loss, -(std::log(s(2)) + 2 * std::log(s(1))) / 3, 1e-15);
  const double slopes[] = {-s(-2) / 3, -s(-1) / 3, -s(-1) / 3};
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(paired.d_logp[k], slopes[k], 1e-16);
    EXPECT_NEAR(paired.d_logp[3 + k], -slopes[k], 1e-16);
  }
  // a: 1, 0, 0; b: 0, -1, -2. Sorted: 0 (1), 0 (2), 1 (0) against -2 (2), -1 (1), 0 (0): D = 2, 1, 1.
  options.loss_type = {PreferenceLossType::kAotUnpaired};
  const oracle::PreferenceTruth unpaired = compute_preference(batch, options);
  EXPECT_NEAR(unpaired.loss, paired.loss, 1e-15);
  const double chosen[] = {-s(-1) / 3, -s(-2) / 3, -s(-1) / 3}, rejected[] = {s(-1) / 3, s(-1) / 3, s(-2) / 3};
  for (int k = 0; k < 3; ++k) {
    EXPECT_NEAR(unpaired.d_logp[k], chosen[k], 1e-16);
    EXPECT_NEAR(unpaired.d_logp[3 + k], rejected[k], 1e-16);
  }
}

TEST(PreferenceOracle, APairWithAnEmptySideCountsNowhere) {
  // Pair 1 has no rejected token, pair 2 has no token at all.
  const SequenceBatch whole = random_batch({4, 3, 0, 5, 0, 0}, 5);
  const SequenceBatch alone = random_batch({4, 5}, 5);
  SequenceBatch pair = alone;
  const auto take = [&](int64_t to, int64_t from) {
    pair.logp[to] = whole.logp[from];
    pair.is_active[to] = whole.is_active[from];
    pair.reference_tokens[to] = whole.reference_tokens[from];
    pair.square_sums[to] = whole.square_sums[from];
  };
  for (int64_t t = 0; t < 4; ++t) take(t, t);
  for (int64_t t = 0; t < 5; ++t) take(4 + t, 7 + t);
  pair.reference = {whole.reference[0], whole.reference[3]};
  for (const PreferenceCase& one : preference_cases()) {
    SCOPED_TRACE(one.name);
    const oracle::PreferenceTruth got = compute_preference(whole, one.options);
    const oracle::PreferenceTruth want = compute_preference(pair, one.options);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.metrics.pairs, 1);
    EXPECT_EQ(got.metrics.tokens, want.metrics.tokens);
    EXPECT_EQ(got.metrics.margin, want.metrics.margin);
    EXPECT_EQ(got.metrics.nll, want.metrics.nll);
    for (int64_t t = 4; t < 7; ++t) EXPECT_EQ(got.d_logp[t], 0);
    for (int64_t t = 7; t < 12; ++t) EXPECT_EQ(got.d_logp[t], want.d_logp[t - 3]);
  }
}

}  // namespace preference_oracle_test
}  // namespace logitless::testing
