// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracle of the policy losses against numbers worked out by hand and against finite differences of
// itself.
#include "oracle/policy_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/policy_cases.h"

namespace logitless::testing {
namespace {

using oracle::PolicyPoint;
using oracle::PolicyValue;

// Sequences of tokens with these log ratios, logp = -2 and ref = -2.25, under options.
struct Example {
  explicit Example(PolicyLossType variant, std::vector<std::vector<double>> log_ratios, std::vector<double> advantages)
      : policy_case(plain_case(variant)), data(data_of(log_ratios, advantages)) {}

  PolicyValue run() const {
    return oracle::compute_policy_loss(data.oracle_tokens(policy_case), policy_case.options, data.at);
  }
  PolicyLoss& options() { return policy_case.options; }

  PolicyCase policy_case;
  PolicyData data;
};

// One token; expects its loss and gradient.
void expect_token(Example example, double loss, double gradient) {
  const PolicyValue result = example.run();
  EXPECT_DOUBLE_EQ(result.loss.value, loss);
  EXPECT_DOUBLE_EQ(result.per_token_loss[0].value, loss);
  EXPECT_DOUBLE_EQ(result.d_logp(0), gradient);
}

Example one_token(PolicyLossType variant, double log_ratio, double advantage,
                  const std::function<void(PolicyLoss&)>& set = {}) {
  Example example(variant, {{log_ratio}}, {advantage});
  if (variant == PolicyLossType::kDrGrpo) example.options().max_completion_length = 1;
  if (set) set(example.options());
  return example;
}

TEST(PolicyOracle, ClippedSurrogate) {
  for (const auto variant :
       {PolicyLossType::kGrpo, PolicyLossType::kBnpo, PolicyLossType::kDrGrpo, PolicyLossType::kDapo,
        PolicyLossType::kLuspo, PolicyLossType::kPpo, PolicyLossType::kRloo}) {
    SCOPED_TRACE(name_of(variant));
    const double above = std::exp(0.5), below = std::exp(-0.5), inside = std::exp(0.125);
    expect_token(one_token(variant, 0.125, 2), -2 * inside, -2 * inside);
    expect_token(one_token(variant, 0.5, 2), -2 * 1.3, 0);
    expect_token(one_token(variant, 0.5, -2), 2 * above, 2 * above);
    expect_token(one_token(variant, -0.5, 2), -2 * below, -2 * below);
    expect_token(one_token(variant, -0.5, -2), 2 * 0.8, 0);
    expect_token(one_token(variant, 0.5, 0), 0, 0);
    // delta bounds the side that clipping leaves free.
    expect_token(one_token(variant, 0.5, -2, [](auto& o) { o.delta = 1.5; }), 2 * 1.5, 0);
    expect_token(one_token(variant, 0.5, -2, [](auto& o) { o.delta = 1.75; }), 2 * above, 2 * above);
    // Below 1 + epsilon_high it is the smaller ratio, and a constant, for A > 0; max(delta, ratio) for A < 0.
    expect_token(one_token(variant, 0.125, 2, [](auto& o) { o.delta = 1.1; }), -2 * 1.1, 0);
    expect_token(one_token(variant, 0.125, -2, [](auto& o) { o.delta = 1.1; }), 2 * inside, 2 * inside);
  }
}

TEST(PolicyOracle, GradientFlowsExactlyOnABound) {
  const double above = std::exp(0.5), below = std::exp(-0.5);
  const auto high = [](double bound) { return [=](auto& o) { o.epsilon_high = bound - 1; }; };
  const auto low = [](double bound) { return [=](auto& o) { o.epsilon_low = 1 - bound; }; };
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, 1.7, high(above)), -1.7 * above, -1.7 * above);
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, 1.7, high(std::nextafter(above, 1))), -1.7 * above, 0);
  expect_token(one_token(PolicyLossType::kGrpo, -0.5, -1.7, low(below)), 1.7 * below, 1.7 * below);
  expect_token(one_token(PolicyLossType::kGrpo, -0.5, -1.7, low(std::nextafter(below, 1))), 1.7 * below, 0);
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, -1.7, [=](auto& o) { o.delta = above; }), 1.7 * above,
               1.7 * above);
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, -1.7, [=](auto& o) { o.delta = std::nextafter(above, 1); }),
               1.7 * above, 0);
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, -1, [](auto& o) { o.log_ratio_clamp = 0.5; }), above, above);
  expect_token(one_token(PolicyLossType::kGrpo, 0.5, -1, [](auto& o) { o.log_ratio_clamp = 0.25; }), std::exp(0.25), 0);
  expect_token(one_token(PolicyLossType::kGrpo, -0.5, 1, [](auto& o) { o.log_ratio_clamp = 0.5; }), -below, -below);
  expect_token(one_token(PolicyLossType::kGrpo, -0.5, 1, [](auto& o) { o.log_ratio_clamp = 0.25; }), -std::exp(-0.25),
               0);
}

TEST(PolicyOracle, VariantsWithoutTheClippedSurrogate) {
  const double ratio = std::exp(0.5);
  // logp = -2.
  expect_token(one_token(PolicyLossType::kReinforce, 0.5, 3), 6, -3);
  expect_token(one_token(PolicyLossType::kCispo, 0.5, 3), 6 * ratio, -3 * ratio);
  expect_token(one_token(PolicyLossType::kCispo, 0.5, -3, [](auto& o) { o.epsilon_high = 1.25; }), -6 * 1.25, 3 * 1.25);
  const double s = 1 / (1 + std::exp(1 - ratio));
  expect_token(one_token(PolicyLossType::kSapo, 0.5, 3), -12 * s, -3 * 4 * s * (1 - s) * ratio);
  const double n = 1 / (1 + std::exp(1.05 * (1 - ratio)));
  expect_token(one_token(PolicyLossType::kSapo, 0.5, -3), 12 / 1.05 * n, 3 * 4 * n * (1 - n) * ratio);
  const double positive = std::exp(3 + 2 * 0.5 - 3 * ratio), negative = std::exp(2 + 3 * 0.5 - 2 * ratio);
  expect_token(one_token(PolicyLossType::kVespo, 0.5, 3), 6 * positive, -3 * positive);
  expect_token(one_token(PolicyLossType::kVespo, 0.5, -3), -6 * negative, 3 * negative);
}

TEST(PolicyOracle, OnPolicyTheRatioIsOneAndItsGradientFlows) {
  Example example = one_token(PolicyLossType::kGrpo, 0.5, 3);
  example.policy_case.on_policy = true;
  expect_token(example, -3, -3);
}

TEST(PolicyOracle, SequenceRatios) {
  Example gspo(PolicyLossType::kGrpo, {{0.25, -0.125, 0.125}, {0.5}}, {1, -1});
  gspo.options().importance_sampling_level = ImportanceLevel::kSequence;
  const double mean = std::exp(0.25 / 3);
  PolicyValue loss = gspo.run();
  EXPECT_NEAR(loss.per_token_loss[1].value, -mean, 1e-15);
  EXPECT_NEAR(loss.loss.value, (-mean + std::exp(0.5)) / 2, 1e-15);
  // Three equal tokens' thirds of three thirds.
  EXPECT_NEAR(loss.d_logp(1), -mean / 2 / 3, 1e-15);
  EXPECT_NEAR(loss.mean_ratio.value, (mean + std::exp(0.5)) / 2, 1e-15);  // each sequence once

  Example rloo(PolicyLossType::kRloo, {{0.25, -0.125}, {}, {0.5}}, {1, 7, -1});
  loss = rloo.run();
  EXPECT_NEAR(loss.per_token_loss[0].value, -std::exp(0.125), 1e-15);
  EXPECT_NEAR(loss.loss.value, (-std::exp(0.125) + std::exp(0.5)) / 3, 1e-15);
  EXPECT_NEAR(loss.d_logp(0), -std::exp(0.125) / 3, 1e-15);
}

TEST(PolicyOracle, Normalisers) {
  const std::vector<std::vector<double>> ratios = {{0, 0, 0}, {}, {0}};
  const std::vector<double> advantages = {-1, 5, -10};  // losses 1, 1, 1, 10
  const auto loss_of = [&](PolicyLossType variant, const std::function<void(PolicyLoss&)>& set = {}) {
    Example example(variant, ratios, advantages);
    if (set) set(example.options());
    return example.run().loss.value;
  };
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kGrpo), 11.0 / 3);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kRloo), 11.0 / 3);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kBnpo), 13.0 / 4);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kPpo), 13.0 / 4);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kDrGrpo), 13.0 / (3 * 9));
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kDapo), 13.0 / 4);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kDapo, [](auto& o) { o.num_items_in_batch = 26; }), 0.5);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kLuspo), 13.0 / 3);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kReinforce), -2 * 13.0 / 3);
  EXPECT_DOUBLE_EQ(loss_of(PolicyLossType::kGrpo, [](auto& o) { o.loss_scale = 3; }), 11.0);
}

TEST(PolicyOracle, KlEstimators) {
  const auto with = [](KlEstimator estimator, bool corrected) {
    return one_token(PolicyLossType::kGrpo, 0.5, 0, [=](auto& o) {
      o.beta = 1;
      o.kl_estimator = estimator;
      o.use_bias_correction_kl = corrected;
    });
  };
  // d = ref - logp = -0.25.
  const double ratio = std::exp(0.5), e = std::exp(-0.25);
  expect_token(with(KlEstimator::kK1, false), 0.25, 1);
  expect_token(with(KlEstimator::kK2, false), 0.03125, 0.25);
  expect_token(with(KlEstimator::kK3, false), std::expm1(-0.25) + 0.25, 1 - e);
  expect_token(with(KlEstimator::kK1, true), 0.25 * ratio, ratio + 0.25 * ratio);
  Example clamped = with(KlEstimator::kK3, false);
  clamped.options().log_ratio_clamp = 0.125;
  expect_token(clamped, std::expm1(-0.125) + 0.125, 0);
}

TEST(PolicyOracle, Factors) {
  // One sequence is off its policy by 0.5 a token, in the direction that loses probability.
  Example masked(PolicyLossType::kBnpo, {{-0.25, -0.75}, {0}}, {-1, -1});
  for (const double threshold : {0.5, std::nextafter(0.5, 0)}) {
    masked.options().off_policy_mask_threshold = threshold;
    EXPECT_EQ(masked.run().per_token_loss[0].value != 0, threshold == 0.5);
    EXPECT_EQ(masked.run().per_token_loss[1].value != 0, threshold == 0.5);
    EXPECT_DOUBLE_EQ(masked.run().per_token_loss[2].value, 1);
  }
  // Entropies 1 to 5: the median and above.
  Example top(PolicyLossType::kBnpo, {{0, 0, 0, 0, 0}}, {-1});
  top.data.at.entropy = {4, 1, 3, 5, 2};
  top.options().top_entropy_quantile = 0.5;
  top.options().entropy_bonus = 0.5;
  const PolicyValue loss = top.run();
  EXPECT_DOUBLE_EQ(loss.loss.value, 3.0 / 5 - 0.5 * 4);
  EXPECT_DOUBLE_EQ(loss.d_entropy(2), -0.5 / 3);
  EXPECT_DOUBLE_EQ(loss.d_entropy(4), 0);
  EXPECT_DOUBLE_EQ(loss.mean_entropy.value, 3);

  Example sampler(PolicyLossType::kBnpo, {{0.25, 0.25}}, {-1});
  sampler.policy_case.with_sampling = true;
  sampler.data.sampling_logps[0] -= 0.5;
  sampler.data.sampling_logps[1] -= 0.25;
  const auto factor = [&](SamplerCorrection mode, int64_t i) {
    sampler.options().sampler_correction = mode;
    return sampler.run().per_token_loss[i].value / std::exp(0.25);
  };
  sampler.options().sampler_clip_max = 1.5;
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kTokenTruncate, 0), 1.5);
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kTokenTruncate, 1), std::exp(0.25));
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kTokenMask, 0), 0);
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kTokenMask, 1), std::exp(0.25));
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kSequenceTruncate, 1), 1.5);
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kSequenceMask, 1), 0);
  sampler.options().sampler_clip_max = std::nullopt;
  EXPECT_DOUBLE_EQ(factor(SamplerCorrection::kSequenceMask, 1), std::exp(0.75));
}

TEST(PolicyOracle, Metrics) {
  Example example(PolicyLossType::kBnpo, {{0.5, 0.5}, {-0.5}, {0.125}}, {1, -1, 1});
  const PolicyValue loss = example.run();
  EXPECT_EQ(loss.tokens, 4);
  EXPECT_DOUBLE_EQ(loss.clip_fraction_high, 0.5);
  EXPECT_DOUBLE_EQ(loss.clip_fraction_low, 0.25);
  EXPECT_DOUBLE_EQ(loss.clip_fraction, 0.75);
  EXPECT_DOUBLE_EQ(loss.mean_ratio.value, (2 * std::exp(0.5) + std::exp(-0.5) + std::exp(0.125)) / 4);
  EXPECT_DOUBLE_EQ(loss.mean_logp.value, -2);
  EXPECT_TRUE(std::isnan(loss.mean_kl.value));
  EXPECT_TRUE(std::isnan(loss.mean_entropy.value));
}

// Central differences of the loss, with everything under sg() held: an error of h² f'''/6 + eps |f| / h.
TEST(PolicyOracle, GradientsAreThoseOfFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const PolicyCase& policy_case : policy_cases(8)) {
    for (const uint64_t seed : {1, 2}) {
      SCOPED_TRACE(policy_case.name + ", seed " + std::to_string(seed));
      const PolicyData data = mixed_data(seed);
      const oracle::PolicyTokens tokens = data.oracle_tokens(policy_case);
      const PolicyValue loss = oracle::compute_policy_loss(tokens, policy_case.options, data.at);
      const Eigen::VectorXd steps = Eigen::VectorXd::Constant(2 * data.tokens(), kStep);
      for (const oracle::Kink& kink : loss.kinks)
        ASSERT_FALSE(kink.is_near(steps)) << kink.distance << " from " << kink.from.value;
      const auto difference = [&](std::vector<double> PolicyPoint::*column, int64_t i) {
        PolicyPoint up = data.at, down = data.at;
        (up.*column)[i] += kStep;
        (down.*column)[i] -= kStep;
        const auto value = [&](const PolicyPoint& at) {
          return oracle::compute_policy_loss(tokens, policy_case.options, at, data.at).loss.value;
        };
        return (value(up) - value(down)) / (2 * kStep);
      };
      for (int64_t i = 0; i < data.tokens(); ++i) {
        EXPECT_NEAR(difference(&PolicyPoint::logp, i), loss.d_logp(i), 1e-8 * (1 + std::abs(loss.d_logp(i))));
        EXPECT_NEAR(difference(&PolicyPoint::entropy, i), loss.d_entropy(i), 1e-8);
      }
    }
  }
}

}  // namespace
}  // namespace logitless::testing
