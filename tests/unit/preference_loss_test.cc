// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Preference losses as functions of token statistics, against the oracle on fabricated log-probabilities:
// every loss and option, and the numbers at which a careless formula breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fabricated_stats.h"
#include "loss/preference.h"
#include "support/preference_cases.h"

namespace logitless::testing {
namespace {

using oracle::SequenceBatch;

struct PairsRun {
  PreferenceResult result;
  std::vector<double> d_logp;
};

PairsRun run_pairs(const SequenceBatch& batch, const PreferenceLoss& options, bool by_group = false) {
  loss::PairLoss loss(options, tokens_of(batch));
  const bool relative = std::ranges::any_of(options.loss_type, oracle::compares_with_reference);
  core::Array<double> reference = reference_of(batch, loss.tokens());
  if (relative && options.ld_alpha) {
    std::fill(reference.begin(), reference.end(), 0);
    for (int64_t i = 0; i < batch.tokens(); ++i) {
      if (loss.tokens().targets[i] == loss::kNoTarget) continue;
      reference[loss.tokens().sequence[i]] += loss.token_weights()[i] * batch.reference_tokens[i];
    }
  }
  if (relative) loss.set_reference(std::move(reference));
  const TokenStats stats = stats_of(batch, loss.tokens());
  PairsRun run;
  run.d_logp = evaluate(loss, stats, calls_of(loss, by_group));
  run.result = loss.result(stats, Plan());
  return run;
}

void expect_metrics_close(const PreferenceMetrics& got, const PreferenceMetrics& want) {
  EXPECT_EQ(got.pairs, want.pairs);
  EXPECT_EQ(got.tokens, want.tokens);
  const double scale = std::max(std::abs(want.chosen_reward), std::abs(want.rejected_reward));
  expect_close("chosen_reward", got.chosen_reward, want.chosen_reward, 1);
  expect_close("rejected_reward", got.rejected_reward, want.rejected_reward, 1);
  expect_close("margin", got.margin, want.margin, std::max(scale, 1.0));
  expect_close("accuracy", got.accuracy, want.accuracy);
  expect_close("chosen_logp", got.chosen_logp, want.chosen_logp);
  expect_close("rejected_logp", got.rejected_logp, want.rejected_logp);
  expect_close("nll", got.nll, want.nll);
  expect_close("mean_entropy", got.mean_entropy, want.mean_entropy);
}

// `scale`: of sums that cancel in the loss and the gradients; 0 asks for full relative accuracy.
void expect_run_close(const PairsRun& run, const oracle::PreferenceTruth& truth, double scale) {
  expect_close("loss", run.result.loss, truth.loss, scale);
  ASSERT_EQ(run.d_logp.size(), truth.d_logp.size());
  for (size_t i = 0; i < truth.d_logp.size(); ++i) {
    expect_close("d_logp[" + std::to_string(i) + "]", run.d_logp[i], truth.d_logp[i], scale);
  }
  ASSERT_EQ(run.result.sequence_logps.size(), truth.sequence_logps.size());
  for (size_t s = 0; s < truth.sequence_logps.size(); ++s) {
    expect_close("sequence_logps[" + std::to_string(s) + "]", run.result.sequence_logps[s], truth.sequence_logps[s]);
  }
  expect_metrics_close(run.result.metrics, truth.metrics);
}

void expect_pairs_close(const SequenceBatch& batch, const PreferenceLoss& options, double scale = 0) {
  expect_run_close(run_pairs(batch, options), oracle::compute_preference(batch, options), scale);
}

TEST(PreferenceLossFunction, EveryLossAndOption) {
  const SequenceBatch batches[] = {random_batch({5, 3, 1, 7, 4, 6, 2, 3}, 21), random_batch({1, 1}, 22),
                                   random_batch({9, 2, 3, 4, 1, 8}, 23)};
  for (const PreferenceCase& one : preference_cases()) {
    for (const SequenceBatch& batch : batches) {
      SCOPED_TRACE(one.name);
      expect_pairs_close(batch, one.options, std::abs(one.options.loss_scale));
    }
  }
}

TEST(PreferenceLossFunction, SameNumbersGroupByGroup) {
  const SequenceBatch batch = random_batch({5, 3, 1, 7, 4, 6, 2, 3}, 24);
  for (const PreferenceCase& one : preference_cases()) {
    SCOPED_TRACE(one.name);
    const PairsRun whole = run_pairs(batch, one.options), parts = run_pairs(batch, one.options, true);
    EXPECT_EQ(whole.result.loss, parts.result.loss);
    EXPECT_EQ(whole.d_logp, parts.d_logp);
    EXPECT_EQ(whole.result.metrics.margin, parts.result.metrics.margin);
  }
}

TEST(PreferenceLossFunction, PairsWithEmptySides) {
  const SequenceBatch batches[] = {random_batch({0, 5, 3, 0, 4, 0, 2, 0}, 25), random_batch({4, 0, 6, 0, 3, 5}, 26),
                                   random_batch({0, 2, 5, 0}, 27), random_batch({0, 0}, 28)};
  for (const PreferenceCase& one : preference_cases()) {
    for (const SequenceBatch& batch : batches) {
      SCOPED_TRACE(one.name);
      expect_pairs_close(batch, one.options, std::abs(one.options.loss_scale));
    }
    // The last two batches hold no whole pair.
    const PairsRun run = run_pairs(batches[2], one.options);
    EXPECT_EQ(run.result.loss, 0);
    EXPECT_EQ(run.d_logp, std::vector<double>(7, 0.0));
    EXPECT_EQ(run.result.sequence_logps, std::vector<double>(4, 0.0));
    EXPECT_EQ(run.result.metrics.pairs, 0);
    EXPECT_EQ(run.result.metrics.tokens, 0);
    for (const double mean : {run.result.metrics.chosen_reward, run.result.metrics.accuracy, run.result.metrics.margin,
                              run.result.metrics.nll, run.result.metrics.mean_entropy}) {
      EXPECT_TRUE(std::isnan(mean));
    }
  }
}

// Margins that are exact in binary, so that the only question is the formula: e^−800 is below the smallest
// number and e^800 above the largest one; before that every digit counts.
TEST(PreferenceLossFunction, ExtremeMarginsKeepTheirDigits) {
  for (const PreferenceLossType loss : every_preference_loss()) {
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
        // The margin in the chosen answer, in the rejected one, and in the reference.
        const SequenceBatch batches[] = {
            one_token_batch({-20000 + margin, -20000}, {-20000, -20000}),
            one_token_batch({-20000, -20000 - margin}, {-20000, -20000}),
            one_token_batch({-20000, -20000}, {-20000 - margin, -20000}),
            one_token_batch({-20000 + margin, -20000 - margin}, {-20000, -20000}),
        };
        for (const SequenceBatch& batch : batches) {
          const oracle::PreferenceTruth truth = oracle::compute_preference(batch, options);
          ASSERT_TRUE(std::isfinite(truth.loss) && std::isfinite(truth.d_logp[0]) && std::isfinite(truth.d_logp[1]));
          // Smoothing mixes slopes of 1 and e^{−z}; so do the sums of nca_pair. Otherwise every digit counts,
          // down to the smallest number.
          const bool mixed = options.label_smoothing != 0 || loss == PreferenceLossType::kNcaPair;
          expect_run_close(run_pairs(batch, options), truth, mixed ? 1 : 1e-290);
        }
      }
    }
  }
}

// An answer that a bias makes impossible: each loss has its limit.
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
  // With tau above 1, m e^{−z} grows without bound for negative z; it is held below e^700. With 2 it gets
  // there at -1400.
  for (const double tau : {1.0, 2.0, 100.0}) {
    for (const double margin : {-600.0, -699.0, -1399.0, -1401.0, -5000.0, 600.0, 699.0, 701.0, 5000.0}) {
      PreferenceLoss options = options_of(PreferenceLossType::kDiscopop);
      options.beta = 1;
      options.discopop_tau = tau;
      const SequenceBatch batch = one_token_batch({-20000 + margin, -20000}, {-20000, -20000});
      const PairsRun run = run_pairs(batch, options);
      EXPECT_TRUE(std::isfinite(run.result.loss)) << tau << " " << margin;
      EXPECT_TRUE(std::isfinite(run.d_logp[0])) << tau << " " << margin;
      expect_run_close(run, oracle::compute_preference(batch, options), 1e-290);
      // A small step moves the loss by what the gradient says: not at all where the clamp holds it.
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
    const PairsRun run = run_pairs(batch, options);
    EXPECT_EQ(run.d_logp[0], chosen < -1 ? -0.5 : 0) << chosen;
    EXPECT_EQ(run.d_logp[1], chosen < -1 ? 0.5 : 0) << chosen;
    expect_run_close(run, oracle::compute_preference(batch, options), 0);
  }
}

TEST(PreferenceLossFunction, AotWithTiesAndUnsortedValues) {
  const SequenceBatch batches[] = {
      // c - r: 1, 3, 1, 3; c⁰ - r⁰: -1, -1, -2, -1.
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

// One value that is not finite makes the loss of every formula say so.
TEST(PreferenceLossFunction, NaNReachesTheLoss) {
  for (const PreferenceLossType loss : every_preference_loss()) {
    for (const int64_t token : {0, 3}) {  // in a chosen answer, and in a rejected one
      SequenceBatch batch = one_token_batch({-1, -2, -3, -4}, {-1.5, -2.5, -2, -3});
      batch.logp[token] = kNaN;
      const PairsRun run = run_pairs(batch, options_of(loss));
      if (loss == PreferenceLossType::kSft && token == 3) continue;  // which reads no rejected answer
      EXPECT_TRUE(std::isnan(run.result.loss)) << name_of(loss) << ": " << run.result.loss;
    }
  }
}

}  // namespace
}  // namespace logitless::testing
