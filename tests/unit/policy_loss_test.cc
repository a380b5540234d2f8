// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy losses as functions of token statistics, against the oracle: every variant and option.
#include "loss/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "policy_evaluation.h"
#include "support/calls.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(PolicyLoss, EveryVariantAndOption) {
  for (const PolicyCase& policy_case : policy_cases(40)) {
    for (const uint64_t seed : {1, 2, 3, 4}) matches_oracle(policy_case, mixed_data(seed));
  }
}

TEST(PolicyLoss, ChunksOfWholeGroupsChangeNoBit) {
  for (const PolicyCase& policy_case : policy_cases(10)) {
    SCOPED_TRACE(policy_case.name);
    const PolicyData data = mixed_data(1);
    const PolicyLoss task = with(policy_case.options, data.batch(policy_case));
    const loss::CompletionLoss loss(task, data.offsets, 3);
    if (couples_batch(policy_case)) continue;
    const bool of_sequence = !loss.groups().empty();
    const Evaluated once = evaluate(policy_case, data);
    const Evaluated often = evaluate(policy_case, data, of_sequence ? Calls::kOneASequence : Calls::kOneAToken);
    EXPECT_EQ(once.result.loss, often.result.loss);
    for (int64_t i = 0; i < data.tokens(); ++i) {
      if (data.mask[i]) {
        EXPECT_EQ(once.grads.logp[i], often.grads.logp[i]);
      }
    }
  }
}

TEST(PolicyLoss, Groups) {
  const PolicyData data = mixed_data(1);
  for (const PolicyCase& policy_case : policy_cases(10)) {
    SCOPED_TRACE(policy_case.name);
    const PolicyLoss& options = policy_case.options;
    const PolicyLoss task = with(options, data.batch(policy_case));
    const loss::CompletionLoss loss(task, data.offsets, 3);
    const bool of_batch = couples_batch(policy_case);
    const bool of_sequence =
        options.loss_type == PolicyLossType::kRloo || options.loss_type == PolicyLossType::kGmpo ||
        options.loss_type == PolicyLossType::kVespo ||
        options.importance_sampling_level == ImportanceLevel::kSequence ||
        options.off_policy_mask_threshold.has_value() ||
        options.sampler_correction == SamplerCorrection::kSequenceTruncate ||
        options.sampler_correction == SamplerCorrection::kSequenceMask ||
        options.sampler_correction == SamplerCorrection::kGeometricMask ||
        (options.teacher_discount != 0 && (options.teacher_against == TeacherAgainst::kCurrent ||
                                           (options.teacher_against == TeacherAgainst::kOld && policy_case.on_policy)));
    ASSERT_EQ(loss.groups().empty(), !of_batch && !of_sequence);
    if (loss.groups().empty()) continue;
    for (const auto& [a, b, same_sequence] : {std::tuple(0, 4, true), {6, 9, true}, {4, 5, false}, {0, 9, false}}) {
      EXPECT_EQ(loss.groups()[a] == loss.groups()[b], of_batch || same_sequence);
    }
  }
}

// A NaN in a token that counts is seen: the loss is NaN, and the row goes on into the gradients.
TEST(PolicyLoss, NaNReachesTheLoss) {
  for (const PolicyCase& policy_case : policy_cases(40)) {
    SCOPED_TRACE(policy_case.name);
    PolicyData data = mixed_data(1);
    const Evaluated before = evaluate(policy_case, data);
    for (const int64_t token : {0, 5, 7}) {
      if (before.result.per_token_loss[token] == 0) continue;
      data = mixed_data(1);
      data.at.logp[token] = data.at.entropy[token] = kNaN;
      const Evaluated after = evaluate(policy_case, data);
      EXPECT_TRUE(std::isnan(after.result.loss));
      EXPECT_TRUE(std::isnan(after.result.metrics.mean_logp));
      EXPECT_TRUE(after.grads.logp[token] != 0) << "the row would be dropped";
      if (couples_batch(policy_case)) continue;
      for (const int64_t other : {9, 6, 2}) {
        const auto sequence = [](int64_t i) { return i < 5 ? 0 : i < 6 ? 1 : 2; };
        if (sequence(other) != sequence(token)) {
          EXPECT_EQ(after.grads.logp[other], before.grads.logp[other]);
        }
      }
    }
  }
}

TEST(PolicyLoss, NaNEntropiesOfALargeBatch) {
  PolicyCase policy_case = one_case(PolicyLossType::kGrpo, "entropies of NaN");
  policy_case.options.top_entropy_quantile = 0.5;
  PolicyData data = data_of({std::vector<double>(100, 0.125)}, {1});
  for (size_t i = 0; i < 100; i += 3) data.at.entropy[i] = data.at.logp[i] = kNaN;
  const Evaluated got = evaluate(policy_case, data);
  EXPECT_TRUE(std::isnan(got.result.loss));
  EXPECT_TRUE(std::isnan(got.grads.logp[3]));
  EXPECT_FALSE(std::isnan(got.grads.logp[4]));
}

// Two tokens in the second of two packed sequences: two advantages are what the caller says.
TEST(PolicyLoss, AsManyTokensAsSequences) {
  const PolicyData data = data_of({{}, {0.25, 0.125}}, {kNaN, -2});
  for (const PolicyLossType variant : all_of<PolicyLossType>()) matches_oracle(plain_case(variant), data);
  PolicyCase of_tokens = one_case(PolicyLossType::kGrpo, "two advantages");
  of_tokens.advantages_per_token = true;
  PolicyData two = data;
  two.token_advantages = {1, -2};
  matches_oracle(of_tokens, two);
  EXPECT_LT(evaluate(of_tokens, two).result.per_token_loss[0], 0);
}

TEST(PolicyLoss, FewerItemsThanOneCountAsOne) {
  for (const PolicyLossType variant : {PolicyLossType::kDapo, PolicyLossType::kCispo, PolicyLossType::kVespo}) {
    PolicyCase one = one_case(variant, "items"), fewer = one;
    one.options.num_items_in_batch = 1;
    fewer.options.num_items_in_batch = 0.25;
    matches_oracle(fewer, mixed_data(1));
    EXPECT_EQ(evaluate(fewer, mixed_data(1)).result.loss, evaluate(one, mixed_data(1)).result.loss);
  }
}

TEST(PolicyLoss, NoTokens) {
  for (const PolicyCase& policy_case : policy_cases(10)) {
    PolicyData data = mixed_data(1);
    for (size_t i = 0; i < data.mask.size(); ++i) {
      data.mask[i] = 0;
      data.old_logps[i] = data.ref_logps[i] = data.sampling_logps[i] = data.token_advantages[i] =
          data.teacher_logps[i] = kNaN;
      data.ids[i] = -1;
    }
    data.sequence_advantages.assign(data.sequence_advantages.size(), kNaN);
    data.scores.assign(data.scores.size(), kNaN);
    matches_oracle(policy_case, data);
    EXPECT_EQ(evaluate(policy_case, data).result.loss, 0);
    const PolicyMetrics metrics = evaluate(policy_case, data).result.metrics;
    for (const double mean :
         {metrics.mean_ratio, metrics.mean_kl, metrics.mean_entropy, metrics.mean_logp, metrics.mean_teacher_kl,
          metrics.clip_fraction_low, metrics.clip_fraction_high, metrics.clip_fraction}) {
      EXPECT_TRUE(std::isnan(mean)) << mean;
    }
  }
}

// A part that weighs nothing adds nothing, though it be infinite.
TEST(PolicyLoss, WithoutAWeightNothingIsInfinite) {
  PolicyCase dro = one_case(PolicyLossType::kDro, "dro without its square");
  dro.options.dro_tau = 0;
  PolicyCase topr = one_case(PolicyLossType::kTopr, "topr without good answers");
  topr.options.topr_weight_pos = 0;
  PolicyCase cispo = one_case(PolicyLossType::kCispo, "cispo without a weight");
  cispo.options.epsilon_high = 0;
  PolicyCase vespo = one_case(PolicyLossType::kVespo, "vespo whose weight underflows");
  for (const PolicyCase& c : {dro, topr, cispo, vespo}) {
    SCOPED_TRACE(c.name);
    const bool of_sequence = c.options.loss_type == PolicyLossType::kVespo;
    const std::vector<double> first =
        of_sequence ? std::vector<double>{0.25, 12, 12, 12, 12} : std::vector<double>{0.25};
    PolicyData data = data_of({first, {0.125}}, {c.options.loss_type == PolicyLossType::kDro ? 0.0 : 1.0, -1});
    data.at.logp[0] = -std::numeric_limits<double>::infinity();
    const Evaluated got = evaluate(c, data);
    EXPECT_EQ(got.result.per_token_loss[0], 0);
    EXPECT_EQ(got.grads.logp[0], 0);
    EXPECT_TRUE(std::isfinite(got.grads.logp[1]));
  }
}

// Equal covariances take the first token: all are 0 where advantages are equal.
TEST(PolicyLoss, KlCovOfEqualAdvantagesTakesTheFirstToken) {
  PolicyCase c = one_case(PolicyLossType::kKlCov, "one sequence");
  c.options.cov_share = 0.2;
  PolicyCase without = c;
  c.options.cov_kl_weight = 100;
  without.options.cov_kl_weight = 0;
  for (const double advantage : {0.1, 0.3, -0.7, 0.5, 1.0}) {
    const PolicyData data = data_of({{0.1, 0.2, -0.3, 0.4, 0.15, -0.25, 0.35}}, {advantage});
    const std::vector<double> with = evaluate(c, data).result.per_token_loss;
    const std::vector<double> plain = evaluate(without, data).result.per_token_loss;
    for (size_t i = 0; i < with.size(); ++i) EXPECT_EQ(with[i] != plain[i], i == 0) << advantage << ", token " << i;
  }
}

// A sure token's log-probability that rounding has put above 0 is in the trust region as one of 0 is.
TEST(PolicyLoss, TrustRegionOfATokenThatWasSure) {
  PolicyCase c = one_case(PolicyLossType::kDppo, "from 1 to e^-1.6");
  c.options.trust_region = TrustRegion::kKl;
  PolicyData data = data_of({{-1.6}}, {-1});
  data.at.logp[0] = -1.6;
  for (const double old : {0.0, 1.2e-7, 2.4e-7}) {
    data.old_logps[0] = old;
    EXPECT_EQ(evaluate(c, data).result.per_token_loss[0], 0) << old;
  }
}

TEST(PolicyLoss, OneTokenAlone) {
  for (PolicyCase policy_case : policy_cases(10)) {
    policy_case.advantages_per_token = false;
    for (const double advantage : {1.0, -1.0, 0.0}) matches_oracle(policy_case, data_of({{0.25}}, {advantage}));
    matches_oracle(policy_case, data_of({{}, {0.25}, {}}, {kNaN, -2, kNaN}));
  }
}

}  // namespace
}  // namespace logitless::testing
