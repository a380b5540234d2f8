// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Preference losses and KTO as functions of token statistics, at values that drawn calls do not reach and at
// which a careless formula fails, such as kinks, ties and NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "loss/kto.h"
#include "loss/preference.h"
#include "loss/sequences.h"
#include "oracle/preference_oracle.h"
#include "support/calls.h"

namespace logitless::testing {
namespace preference_loss_test {

using oracle::SequenceBatch;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Returns options with one term that the loss accepts.
PreferenceLoss options_of(PreferenceLossType loss) {
  PreferenceLoss options;
  options.loss_type = {loss};
  if (loss == PreferenceLossType::kExoPair) options.label_smoothing = 0.05;  // required
  return options;
}

// Returns sequences of one token with these log-probabilities and reference.
SequenceBatch one_token_batch(const std::vector<double>& logp, const std::vector<double>& reference) {
  SequenceBatch batch;
  batch.logp = logp;
  batch.entropy.assign(logp.size(), 0.5);
  batch.is_active.assign(logp.size(), true);
  for (size_t s = 0; s <= logp.size(); ++s) batch.offsets.push_back(static_cast<int64_t>(s));
  batch.reference = batch.reference_tokens = reference;
  batch.square_sums.assign(logp.size(), 0.25);
  return batch;
}

// Returns sequences of one token, in the form that the loss expects.
loss::SequenceTokens tokens_of(const SequenceBatch& batch) {
  loss::SequenceTokens tokens;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    tokens.counts.push_back(1);
    tokens.targets.push_back(0);
    tokens.sequence.push_back(s);
  }
  return tokens;
}

template <class Result>
struct LossRun {
  Result result;
  std::vector<double> d_logp;
};

// Evaluates all tokens at once.
template <class Result, class Loss>
LossRun<Result> run_loss(Loss& loss, const SequenceBatch& batch) {
  TokenStats stats;
  stats.logp = batch.logp;
  stats.entropy = batch.entropy;
  stats.square_sum = batch.square_sums;
  TokenGrads grads;
  grads.logp.assign(stats.logp.size(), kNaN);
  std::vector<int64_t> rows(stats.logp.size());
  std::iota(rows.begin(), rows.end(), 0);
  loss.evaluate(rows, stats, grads);
  return {loss.result(stats, Plan()), grads.logp};
}

LossRun<PreferenceResult> run_pairs(const SequenceBatch& batch, const PreferenceLoss& options) {
  loss::PairLoss loss(options, tokens_of(batch));
  if (std::ranges::any_of(options.loss_type, oracle::compares_with_reference)) {
    loss.set_reference({batch.reference.begin(), batch.reference.end()});
  }
  return run_loss<PreferenceResult>(loss, batch);
}

LossRun<KtoResult> run_kto(const oracle::KtoInput& input, const KtoLoss& options) {
  KtoLoss task = options;
  task.labels = input.labels;
  task.sequence_weights = input.sequence_weights;
  if (!input.reward_targets.empty()) task.reward_targets = input.reward_targets;
  loss::SequenceLoss loss(task, tokens_of(input.batch), "hidden");
  loss.set_reference({input.batch.reference.begin(), input.batch.reference.end()});
  return run_loss<KtoResult>(loss, input.batch);
}

// `scale`: the size of sums that cancel; 0 requires full relative accuracy.
template <class Run, class Truth>
void expect_run_close(const Run& run, const Truth& truth, double scale) {
  const auto expect_close = [&](const std::string& what, double got, double want) {
    const bool is_close = std::isfinite(want) ? std::abs(got - want) <= 1e-12 * std::max(std::abs(want), scale)
                          : std::isnan(want)  ? std::isnan(got)
                                              : got == want;
    EXPECT_TRUE(is_close) << what << " is " << got << ", not " << want;
  };
  expect_close("loss", run.result.loss, truth.loss);
  ASSERT_EQ(run.d_logp.size(), truth.d_logp.size());
  for (size_t i = 0; i < truth.d_logp.size(); ++i) {
    expect_close("d_logp[" + std::to_string(i) + "]", run.d_logp[i], truth.d_logp[i]);
  }
}

void expect_pairs_close(const SequenceBatch& batch, const PreferenceLoss& options, double scale = 0) {
  expect_run_close(run_pairs(batch, options), oracle::compute_preference(batch, options), scale);
}

// Margins are exact in binary, so that only the formula is tested: e^−800 underflows, e^800 overflows, and up
// to there every digit counts.
TEST(PreferenceLossFunction, ExtremeMarginsKeepTheirDigits) {
  for (const PreferenceLossType loss : all_of<PreferenceLossType>()) {
    for (const double smoothing : {0.0, 0.25}) {
      for (const double margin :
           {0.0, 0.5, -0.5, 16.0, -16.0, 40.0, -40.0, 512.0, -512.0, 690.0, -690.0, 800.0, -800.0, 1e4, -1e4}) {
        PreferenceLoss options = options_of(loss);
        options.beta = 1;
        options.simpo_gamma = 0;
        options.nll_weight = 0.0;
        if (smoothing != 0) options.label_smoothing = smoothing;
        if (smoothing != 0 && loss != PreferenceLossType::kExoPair && loss != PreferenceLossType::kRobust &&
            loss != PreferenceLossType::kAot && loss != PreferenceLossType::kAotUnpaired &&
            loss != PreferenceLossType::kSimpo && loss != PreferenceLossType::kCpo) {
          continue;
        }
        SCOPED_TRACE(std::string(name_of(loss)) + " at " + std::to_string(margin));
        // Puts the margin into the chosen answer, the rejected one, and the reference.
        const SequenceBatch batches[] = {
            one_token_batch({-20000 + margin, -20000}, {-20000, -20000}),
            one_token_batch({-20000, -20000 - margin}, {-20000, -20000}),
            one_token_batch({-20000, -20000}, {-20000 - margin, -20000}),
            one_token_batch({-20000 + margin, -20000 - margin}, {-20000, -20000}),
        };
        for (const SequenceBatch& batch : batches) {
          const oracle::PreferenceTruth truth = oracle::compute_preference(batch, options);
          ASSERT_TRUE(std::isfinite(truth.loss) && std::isfinite(truth.d_logp[0]) && std::isfinite(truth.d_logp[1]));
          // Smoothing mixes slopes of 1 and e^{−z}, and so do the sums of nca_pair. Otherwise every digit
          // counts, down to the smallest number.
          const bool mixed = options.label_smoothing != 0 || loss == PreferenceLossType::kNcaPair;
          expect_run_close(run_pairs(batch, options), truth, mixed ? 1 : 1e-290);
        }
      }
    }
  }
}

// If a bias makes an answer impossible, each loss takes its limit.
TEST(PreferenceLossFunction, AnswersOfProbability0) {
  const auto of = [](PreferenceLossType loss, double smoothing, double chosen, double rejected) {
    PreferenceLoss options = options_of(loss);
    options.beta = 1;
    options.nll_weight = 0.0;
    options.label_smoothing = smoothing;
    return run_pairs(one_token_batch({chosen, rejected}, {-3, -3}), options);
  };
  using L = PreferenceLossType;
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(of(L::kRobust, 0, -3, kNever).result.loss, 0);
  EXPECT_NEAR(of(L::kExoPair, 0.1, -3, kNever).result.loss, -std::log(0.9), 1e-15);
  EXPECT_NEAR(of(L::kExoPair, 0.1, kNever, -3).result.loss, -std::log(0.1), 1e-15);
  EXPECT_LT(of(L::kDiscopop, 0, -3, kNever).result.loss, 1e-300);
  EXPECT_EQ(of(L::kDiscopop, 0, kNever, -3).result.loss, std::numeric_limits<double>::infinity());
  for (const auto& [loss, smoothing] : {std::pair(L::kRobust, 0.0), {L::kExoPair, 0.1}}) {
    for (const double slope : of(loss, smoothing, -3, kNever).d_logp) EXPECT_EQ(slope, 0) << name_of(loss);
  }
  for (const double slope : of(L::kExoPair, 0.1, kNever, -3).d_logp) EXPECT_EQ(slope, 0);
  EXPECT_EQ(of(L::kDiscopop, 0, kNever, -3).d_logp, (std::vector<double>{-1, 1}));
}

TEST(PreferenceLossFunction, DiscopopWithSlowTails) {
  // With tau above 1, m e^{−z} grows without bound for negative z, and is clamped below e^700. With tau = 2
  // it reaches the clamp at -1400.
  for (const double tau : {1.0, 2.0, 100.0}) {
    for (const double margin : {-600.0, -699.0, -1399.0, -1401.0, -5000.0, 600.0, 699.0, 701.0, 5000.0}) {
      PreferenceLoss options = options_of(PreferenceLossType::kDiscopop);
      options.beta = 1;
      options.discopop_tau = tau;
      const SequenceBatch batch = one_token_batch({-20000 + margin, -20000}, {-20000, -20000});
      const auto run = run_pairs(batch, options);
      EXPECT_TRUE(std::isfinite(run.result.loss)) << tau << " " << margin;
      EXPECT_TRUE(std::isfinite(run.d_logp[0])) << tau << " " << margin;
      expect_run_close(run, oracle::compute_preference(batch, options), 1e-290);
      // A small step changes the loss by what the gradient says, and not at all where it is clamped.
      const SequenceBatch moved = one_token_batch({-20000 + margin + 0x1p-10, -20000}, {-20000, -20000});
      const double change = (run_pairs(moved, options).result.loss - run.result.loss) * 0x1p10;
      EXPECT_NEAR(change, run.d_logp[0], 1e-3 * std::abs(run.d_logp[0]) + 1e-12 * run.result.loss * 0x1p10) << margin;
    }
  }
}

TEST(PreferenceLossFunction, OrpoNearCertainty) {
  const double edge = -0x1p-24;
  const double values[] = {
      0.0, -1e-300, -1e-12, std::nextafter(edge, 0), edge, std::nextafter(edge, -1), -1e-7, -1e-3, -0.6931, -0.7,
      -30, -800,    -1e4};
  PreferenceLoss options = options_of(PreferenceLossType::kOrpo);
  for (const double beta : {0.1, 1.0}) {
    options.beta = beta;
    for (const double nll_weight : {0.0, 1.0}) {
      options.nll_weight = nll_weight;
      for (const double chosen : values) {
        for (const double rejected : values) {
          SCOPED_TRACE(std::to_string(chosen) + " and " + std::to_string(rejected));
          expect_pairs_close(one_token_batch({chosen, rejected}, {}), options, 1e-290);
        }
      }
    }
  }
}

TEST(PreferenceLossFunction, HingeOnAndBesideItsKink) {
  PreferenceLoss options = options_of(PreferenceLossType::kHinge);
  options.beta = 0.5;
  for (const double chosen : {-1.0, std::nextafter(-1.0, 0), std::nextafter(-1.0, -2), -0.5, -3.0}) {
    // 1 - 0.5 (chosen + 3): 0 at chosen = -1.
    const SequenceBatch batch = one_token_batch({chosen, -4}, {-1, -2});
    const auto run = run_pairs(batch, options);
    EXPECT_EQ(run.d_logp[0], chosen < -1 ? -0.5 : 0) << chosen;
    EXPECT_EQ(run.d_logp[1], chosen < -1 ? 0.5 : 0) << chosen;
    expect_run_close(run, oracle::compute_preference(batch, options), 0);
  }
}

TEST(PreferenceLossFunction, AotWithTiesAndUnsortedValues) {
  const SequenceBatch batches[] = {
      // Chosen minus rejected is 1, 3, 1, 3 in the policy and -1, -1, -2, -1 in the reference: neither is
      // sorted, and both have ties.
      one_token_batch({-1, -1, -3, -2, -2, -4, -4, -5}, {-3, -2, -4, -2, -2, -1, -2, -1}),
      // All are equal.
      one_token_batch({-1, -1, -1, -2, -2, -2}, {-1, -1, -1, -1, -1, -1}),
      // They fall in the policy and rise in the reference.
      one_token_batch({-1, -2, -3, -4, -8, -8, -8, -8}, {-4, -3, -2, -1, -5, -5, -5, -5}),
  };
  for (const PreferenceLossType loss : {PreferenceLossType::kAot, PreferenceLossType::kAotUnpaired}) {
    for (const double smoothing : {0.0, 0.125}) {
      for (const SequenceBatch& batch : batches) {
        PreferenceLoss options = options_of(loss);
        options.beta = 1.5;
        options.label_smoothing = smoothing;
        expect_pairs_close(batch, options);
      }
    }
  }
}

// One value that is not finite must make the loss of every formula NaN.
TEST(PreferenceLossFunction, NaNReachesTheLoss) {
  for (const PreferenceLossType loss : all_of<PreferenceLossType>()) {
    for (const int64_t token : {0, 3}) {  // in a chosen answer, and in a rejected one
      SequenceBatch batch = one_token_batch({-1, -2, -3, -4}, {-1.5, -2.5, -2, -3});
      batch.logp[token] = kNaN;
      const auto run = run_pairs(batch, options_of(loss));
      if (loss == PreferenceLossType::kSft && token == 3) continue;  // it reads no rejected answer
      EXPECT_TRUE(std::isnan(run.result.loss)) << name_of(loss) << ": " << run.result.loss;
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
      expect_run_close(run_kto(input, options), oracle::compute_kto(input, options), 1e-290);
    }
  }
}

// A sequence with weight 0 adds nothing, even if its loss is infinite.
TEST(KtoLossFunction, OnlyWhatWeighsMayBeInfiniteOrNaN) {
  for (const KtoLossType loss : all_of<KtoLossType>()) {
    KtoLoss options;
    options.loss_type = loss;
    oracle::KtoInput input;
    input.batch = one_token_batch({-std::numeric_limits<double>::infinity(), -1.5}, {-2, -2});
    input.labels = {1, 0};
    input.sequence_weights = {0, 1};
    if (loss == KtoLossType::kA2po) input.reward_targets = {0.5, 0.25};
    const auto run = run_kto(input, options);
    EXPECT_TRUE(std::isfinite(run.result.loss)) << name_of(loss);
    EXPECT_EQ(run.d_logp[0], 0) << name_of(loss);
    EXPECT_TRUE(std::isfinite(run.d_logp[1])) << name_of(loss);
    // A NaN in a sequence that counts is not hidden.
    input.batch.logp[1] = kNaN;
    EXPECT_TRUE(std::isnan(run_kto(input, options).result.loss)) << name_of(loss);
  }
}

}  // namespace preference_loss_test
}  // namespace logitless::testing
