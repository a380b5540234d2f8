// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// KTO as a function of token statistics, against the oracle on fabricated log-probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fabricated_stats.h"
#include "loss/kto.h"
#include "support/calls.h"
#include "support/preference_cases.h"

namespace logitless::testing {
namespace {

struct KtoRun {
  KtoResult result;
  std::vector<double> d_logp;
};

KtoRun run_kto(const oracle::KtoInput& input, const KtoLoss& options, bool by_group = false) {
  KtoBatch batch;
  batch.labels = input.labels;
  if (!input.kl_logps.empty()) {
    batch.kl_logps = ConstVector(input.kl_logps.data(), static_cast<int64_t>(input.kl_logps.size()));
    batch.kl_ref_logps = ConstVector(input.kl_ref_logps.data(), static_cast<int64_t>(input.kl_ref_logps.size()));
  }
  const auto view = [](const std::vector<double>& v) { return ConstVector(v.data(), static_cast<int64_t>(v.size())); };
  if (!input.sequence_weights.empty()) batch.sequence_weights = view(input.sequence_weights);
  if (!input.reward_targets.empty()) batch.reward_targets = view(input.reward_targets);
  const KtoLoss task = with(options, batch);
  loss::SequenceLoss loss(task, tokens_of(input.batch), "hidden");
  loss.set_reference(reference_of(input.batch, loss.tokens()));
  const TokenStats stats = stats_of(input.batch, loss.tokens());
  KtoRun run;
  run.d_logp = evaluate(loss, stats, calls_of(loss, by_group));
  run.result = loss.result(stats, Plan());
  return run;
}

void expect_columns_close(const std::string& what, const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    expect_close(what + "[" + std::to_string(i) + "]", got[i], want[i], 1e-290);
  }
}

void expect_kto_close(const oracle::KtoInput& input, const KtoLoss& options) {
  const KtoRun run = run_kto(input, options), parts = run_kto(input, options, true);
  const oracle::KtoTruth truth = oracle::compute_kto(input, options);
  expect_close("loss", run.result.loss, truth.loss, 1e-290);
  EXPECT_EQ(run.result.loss, parts.result.loss);
  EXPECT_EQ(run.d_logp, parts.d_logp);
  expect_columns_close("d_logp", run.d_logp, truth.d_logp);
  expect_columns_close("sequence_losses", run.result.sequence_losses, truth.sequence_losses);
  expect_columns_close("sequence_logps", run.result.sequence_logps, truth.sequence_logps);
  const KtoMetrics &got = run.result.metrics, &want = truth.metrics;
  EXPECT_EQ(got.desirable, want.desirable);
  EXPECT_EQ(got.undesirable, want.undesirable);
  EXPECT_EQ(got.tokens, want.tokens);
  expect_close("kl", got.kl, want.kl);
  expect_close("desirable_reward", got.desirable_reward, want.desirable_reward, 1);
  expect_close("undesirable_reward", got.undesirable_reward, want.undesirable_reward, 1);
  expect_close("margin", got.margin, want.margin, 1);
  expect_close("desirable_logp", got.desirable_logp, want.desirable_logp);
  expect_close("undesirable_logp", got.undesirable_logp, want.undesirable_logp);
  expect_close("mean_entropy", got.mean_entropy, want.mean_entropy);
}

TEST(KtoLossFunction, EveryOption) {
  for (const KtoCase& one : kto_cases()) {
    SCOPED_TRACE(one.name);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{5, 3, 1, 7, 4, 6}, {0, 4, 0, 2, 6, 0}, {3}, {0, 0, 0}}) {
      expect_kto_close(kto_input(random_batch(lengths, 31), one), one.options);
    }
  }
}

TEST(KtoLossFunction, ExtremeRewardsKeepTheirDigits) {
  KtoLoss options;
  options.beta = 1;
  for (const double reward : {0.0, 16.0, -16.0, 40.0, -40.0, 690.0, -690.0, 800.0, -800.0, 1e4, -1e4}) {
    for (const uint8_t label : {uint8_t{0}, uint8_t{1}}) {
      oracle::KtoInput input;
      input.batch = one_token_batch({-20000 + reward}, {-20000});
      input.labels = {label};
      SCOPED_TRACE(reward);
      expect_kto_close(input, options);
    }
  }
}

TEST(KtoLossFunction, NaNReachesTheLoss) {
  for (const KtoCase& one : kto_cases()) {
    oracle::KtoInput input = kto_input(random_batch({3, 2}, 32), one);
    input.batch.logp[0] = kNaN;
    EXPECT_TRUE(std::isnan(run_kto(input, one.options).result.loss)) << one.name;
  }
}

// A sequence that weighs nothing adds nothing, though its loss be infinite.
TEST(KtoLossFunction, WithoutAWeightNothingIsInfinite) {
  for (const KtoLossType loss : all_of<KtoLossType>()) {
    KtoLoss options;
    options.loss_type = loss;
    oracle::KtoInput input;
    input.batch = one_token_batch({-std::numeric_limits<double>::infinity(), -1.5}, {-2, -2});
    input.labels = {1, 0};
    input.sequence_weights = {0, 1};
    if (loss == KtoLossType::kA2po) input.reward_targets = {0.5, 0.25};
    const KtoRun run = run_kto(input, options);
    EXPECT_TRUE(std::isfinite(run.result.loss)) << name_of(loss);
    EXPECT_EQ(run.d_logp[0], 0) << name_of(loss);
    EXPECT_TRUE(std::isfinite(run.d_logp[1])) << name_of(loss);
  }
}

TEST(KtoLossFunction, NothingTakesPart) {
  const KtoCase& one = kto_cases()[1];
  const KtoRun run = run_kto(kto_input(random_batch({0, 0}, 1), one), one.options);
  EXPECT_EQ(run.result.loss, 0);
  EXPECT_TRUE(std::isnan(run.result.metrics.margin));
  EXPECT_TRUE(std::isnan(run.result.metrics.desirable_reward));
  EXPECT_TRUE(std::isnan(run.result.metrics.undesirable_logp));
  EXPECT_EQ(run.result.metrics.desirable + run.result.metrics.undesirable, 0);
}

}  // namespace
}  // namespace logitless::testing
