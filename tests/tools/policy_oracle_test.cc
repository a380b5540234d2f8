// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Compares the oracle of the policy losses with numbers worked out by hand and with its own finite
// differences.
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

// Sequences of tokens with these log ratios, logp = -2 and ref = -2.25, with options.
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

// Expects the loss and gradient of one token.
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

TEST(PolicyOracle, Factors) {
  // One sequence has moved from its policy by 0.5 per token, towards lower probability.
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
}

// Central differences of the loss, with everything under sg() constant: their error is h² f'''/6 + eps |f| /
// h.
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
