// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy losses exactly on their bounds, an ulp and a bit to both sides: clip ranges, delta, clamps,
// thresholds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "policy_evaluation.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

constexpr PolicyLossType kClipped[] = {PolicyLossType::kGrpo, PolicyLossType::kBnpo,  PolicyLossType::kDrGrpo,
                                       PolicyLossType::kDapo, PolicyLossType::kLuspo, PolicyLossType::kPpo,
                                       PolicyLossType::kRloo};
// Mantissas at which products of neighbours round to the same number, and at which they do not.
constexpr double kAdvantages[] = {1, -1, 1.75, -1.75, 0.7, -0.7, 1.0000001, -1.9999999, 3.3, -3.3, 1e-3, -1e-3, 0};

// `value` and its neighbours, then a bit further away.
std::vector<double> around(double value) {
  std::vector<double> values = {value, value * (1 - 1e-9), value * (1 + 1e-9)};
  for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
    double next = value;
    for (int ulps = 0; ulps < 3; ++ulps) values.push_back(next = std::nextafter(next, towards));
  }
  return values;
}

TEST(PolicyBounds, ClipBounds) {
  for (const PolicyLossType variant : kClipped) {
    for (const double advantage : kAdvantages) {
      for (const double log_ratio : {0.0625, 0.25, 0.5, 0.6875}) {
        const PolicyData up = data_of({{log_ratio}, {0.125}}, {advantage, 1});
        for (const double bound : around(std::exp(log_ratio))) {
          PolicyCase c = one_case(variant, "epsilon_high at " + std::to_string(log_ratio));
          c.options.epsilon_high = bound - 1;
          ASSERT_EQ(1 + *c.options.epsilon_high, bound);
          matches_oracle(c, up);
          c.options.delta = 1.5;
          matches_oracle(c, up);
        }
        const PolicyData down = data_of({{-log_ratio}, {0.125}}, {advantage, 1});
        for (const double bound : around(std::exp(-log_ratio))) {
          PolicyCase c = one_case(variant, "epsilon_low at " + std::to_string(-log_ratio));
          c.options.epsilon_low = 1 - bound;
          // Of the smaller numbers every second one cannot be
          if (1 - *c.options.epsilon_low != bound) continue;
          matches_oracle(c, down);
        }
        for (const double bound : around(std::exp(log_ratio))) {
          PolicyCase c = one_case(variant, "delta at " + std::to_string(log_ratio));
          c.options.delta = bound;
          matches_oracle(c, up);
          c.options.epsilon_high = bound - 1;
          matches_oracle(c, up);
        }
      }
    }
  }
}

TEST(PolicyBounds, ClipBoundsOfSequences) {
  // Sums and means of these are exact.
  const std::vector<std::vector<double>> ratios = {{0.5, 0.25, 0.125, 0.125}, {}, {-0.5, -0.25, 0, -0.25}};
  for (const double advantage : kAdvantages) {
    const PolicyData data = data_of(ratios, {advantage, kNaN, advantage});
    for (const bool rloo : {false, true}) {
      PolicyCase c = one_case(rloo ? PolicyLossType::kRloo : PolicyLossType::kGrpo, "of sequences");
      if (!rloo) c.options.importance_sampling_level = ImportanceLevel::kSequence;
      for (const double bound : around(std::exp(rloo ? 1.0 : 0.25))) {
        c.options.epsilon_high = bound - 1;
        matches_oracle(c, data);
        c.options.delta = bound;
        matches_oracle(c, data);
        c.options.delta = std::nullopt;
      }
      for (const double bound : around(std::exp(rloo ? -1.0 : -0.25))) {
        c.options.epsilon_low = 1 - bound;
        matches_oracle(c, data);
      }
    }
  }
}

TEST(PolicyBounds, LogRatioClamp) {
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    for (const double log_ratio : {0.25, -0.25, 1.5, -1.5, 25.0, -25.0, 40.0, -800.0, 800.0}) {
      for (const double advantage : {1.7, -1.7, 0.0}) {
        PolicyData data = data_of({{log_ratio}, {0.125, 0.25}}, {advantage, 1});
        PolicyCase c = one_case(variant, "log ratio " + std::to_string(log_ratio));
        matches_oracle(c, data);
        for (const double clamp : around(std::abs(log_ratio))) {
          c.options.log_ratio_clamp = std::min(clamp, 300.0);
          matches_oracle(c, data);
        }
        c.options.log_ratio_clamp = std::nullopt;
        matches_oracle(c, data);
        c.options.beta = 0.5;
        for (const double d : {-0.25, 0.25}) {
          data.ref_logps.assign(3, -2 + d);
          for (const double clamp : around(0.25)) {
            c.options.log_ratio_clamp = clamp;
            matches_oracle(c, data);
          }
        }
      }
    }
  }
}

// Shares that are a whole number of tokens: the token at the quantile is kept.
TEST(PolicyBounds, SharesOfElevenTokens) {
  PolicyData data = data_of({std::vector<double>(11, 0.125)}, {1});
  for (size_t i = 0; i < 11; ++i) data.at.entropy[i] = 0.1 * static_cast<double>(i * 7 % 11);
  PolicyCase c = one_case(PolicyLossType::kGrpo, "eleven tokens");
  for (int tenths = 1; tenths < 10; ++tenths) {
    c.options.top_entropy_quantile = tenths / 10.0;
    const std::vector<double> losses = evaluate(c, data).result.per_token_loss;
    EXPECT_EQ(11 - std::count(losses.begin(), losses.end(), 0.0), tenths + 1) << tenths;
  }
}

// Two weights at their largest multiply in every mixture that has them, and everything stays a finite
// float64.
TEST(PolicyBounds, NoWeightIsInfinite) {
  std::vector<PolicyCase> cases = policy_cases(40);
  PolicyCase vespo = one_case(PolicyLossType::kVespo, "a weight without a maximum");
  vespo.options.vespo_k_pos = vespo.options.vespo_k_neg = 1e6;
  cases.push_back(vespo);
  for (PolicyCase& c : cases) {
    SCOPED_TRACE(c.name);
    c.options.log_ratio_clamp = std::nullopt;
    c.options.sampler_clip_max =
        c.options.sampler_correction == SamplerCorrection::kNone ? std::optional(3.0) : std::nullopt;
    for (const double far : {89.0, 299.0, 301.0, 710.0, 2e4}) {
      for (const double sign : {-1.0, 1.0}) {
        PolicyData data = data_of({{far * sign, 0.25}, {-far * sign, 0.125, far}}, {1.7, -1e6});
        for (size_t i = 0; i < data.ref_logps.size(); ++i) {
          data.ref_logps[i] += (i % 2 == 0 ? 1 : -1) * far;
          data.sampling_logps[i] -= (i % 3 == 0 ? 1 : -1) * far;
        }
        // The slope of K ρ is a difference of two numbers near e^d ρ: neither side has digits of it here.
        if (!c.options.use_bias_correction_kl) matches_oracle(c, data);
        const Evaluated got = evaluate(c, data);
        EXPECT_TRUE(std::isfinite(got.result.loss)) << far * sign;
        EXPECT_TRUE(std::isfinite(got.result.metrics.mean_ratio)) << far * sign;
        EXPECT_EQ(std::isfinite(got.result.metrics.mean_kl), c.options.beta != 0) << far * sign;
        for (const double gradient : got.grads.logp) EXPECT_TRUE(std::isfinite(gradient)) << far * sign;
      }
    }
  }
}

TEST(PolicyBounds, CispoBound) {
  for (const double advantage : kAdvantages) {
    for (const double log_ratio : {-0.5, 0.5, 1.5, 3.0}) {
      for (const double bound : around(std::exp(log_ratio))) {
        PolicyCase c = one_case(PolicyLossType::kCispo, "bound at " + std::to_string(log_ratio));
        c.options.epsilon_high = bound;
        matches_oracle(c, data_of({{log_ratio}, {0.125}}, {advantage, 1}));
      }
    }
  }
}

TEST(PolicyBounds, SamplerBounds) {
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    for (const auto mode : {SamplerCorrection::kTokenTruncate, SamplerCorrection::kTokenMask,
                            SamplerCorrection::kSequenceTruncate, SamplerCorrection::kSequenceMask}) {
      const bool of_token = mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kTokenMask;
      if (variant == PolicyLossType::kVespo && !of_token) continue;
      PolicyCase c = one_case(variant, name_of(mode));
      c.with_sampling = true;
      c.options.sampler_correction = mode;
      // Old minus sampling: 0.25 and 0.5 in the first sequence, -0.25 and unknown in the second.
      PolicyData data = data_of({{0.125, -0.125}, {0.25, 0.0625}}, {1.7, -0.3});
      for (const size_t i : {0, 1}) data.sampling_logps[i] -= i == 0 ? 0.25 : 0.5;
      data.sampling_logps[2] += 0.25;
      data.sampling_logps[3] = kNaN;
      for (const bool on_policy : {false, true}) {
        c.on_policy = on_policy;
        const double high = on_policy ? (of_token ? 0.375 : 0.75) : (of_token ? 0.25 : 0.75);
        for (const double bound : around(std::exp(high))) {
          c.options.sampler_clip_max = bound;
          matches_oracle(c, data);
        }
        c.options.sampler_clip_max = std::nullopt;
        for (const double bound : around(std::exp(on_policy ? 0.0 : -0.25))) {
          c.options.sampler_clip_min = bound;
          matches_oracle(c, data);
        }
        c.options.sampler_clip_min = std::nullopt;
        // An unknown value has r = 1, which is clamped and masked like any other.
        for (const double bound : around(1)) {
          c.options.sampler_clip_max = bound;
          matches_oracle(c, data);
        }
      }
    }
  }
}

TEST(PolicyBounds, OffPolicyThreshold) {
  PolicyData data = data_of({{-0.5, -0.25, -0.25, -1}, {0.5, 0.25}, {}, {-0.75}}, {-1, -1, kNaN, 0});
  data.sampling_logps[3] = kNaN;
  data.sampling_logps[0] += 1;
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    PolicyCase c = one_case(variant, "off-policy mask");
    for (const bool sampler : {false, true}) {
      c.with_sampling = sampler;
      // Mean drift: (0.5 + 0.25 + 0.25 + 1) / 4; with the sampler (1.5 + 0.25 + 0.25 + 0) / 4; -0.375 in the
      // second.
      for (const double drift : {0.5, -0.375}) {
        for (const double threshold : around(drift)) {
          c.options.off_policy_mask_threshold = threshold;
          matches_oracle(c, data);
        }
      }
    }
  }
}

TEST(PolicyBounds, EntropyQuantile) {
  PolicyData data = data_of({{0.125, 0.25, 0.125}, {}, {-0.125, 0.5}}, {1, kNaN, -1});
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    if (variant == PolicyLossType::kGmpo) continue;
    for (const double quantile : {1.0, 0.75, 0.5, 0.25, 0.3, 0.9, 1e-9}) {
      for (const double bonus : {0.0, 0.5}) {
        PolicyCase c = one_case(variant, "top entropy quantile " + std::to_string(quantile));
        c.options.top_entropy_quantile = quantile;
        c.options.entropy_bonus = bonus;
        data.at.entropy = {4, 1, 3, 5, 2};
        matches_oracle(c, data);
        for (const double neighbour : around(3)) {
          data.at.entropy = {neighbour, 1, 3, 5, neighbour};
          matches_oracle(c, data);
        }
        data.at.entropy.assign(5, 0.25);  // all tokens are at the quantile
        matches_oracle(c, data);
      }
    }
  }
}

}  // namespace
}  // namespace logitless::testing
