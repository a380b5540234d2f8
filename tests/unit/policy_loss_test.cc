// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses as functions of token statistics, on numbers that are never drawn: exactly on bounds, an ulp
// or a little to both sides; NaN; weights of 0 and the largest weights.
#include "loss/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/policy_cases.h"

namespace logitless::testing {
namespace policy_loss_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Evaluated {
  PolicyResult result;
  TokenGrads grads;
};

// Evaluates all tokens that count at once.
Evaluated evaluate(const PolicyCase& policy_case, const PolicyData& data) {
  const PolicyLoss task = with(policy_case.options, data.batch(policy_case));
  loss::CompletionLoss loss(task, data.offsets, 3);
  TokenStats stats;
  stats.logp = data.at.logp;
  if (loss.needs().entropy) stats.entropy = data.at.entropy;
  Evaluated out;
  out.grads.logp.assign(stats.logp.size(), kNaN);
  if (loss.gradients().entropy) out.grads.entropy.assign(stats.logp.size(), kNaN);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < data.tokens(); ++i) {
    if (data.mask[i]) {
      rows.push_back(i);
      continue;
    }
    stats.logp[i] = 0;  // as the engine sets it
    if (!stats.entropy.empty()) stats.entropy[i] = 0;
  }
  loss.evaluate(rows, stats, out.grads);
  out.result = loss.result(stats, Plan());
  return out;
}

// Numbers may have lost digits to cancellation in sums, so the bound is relative to the largest. An exact 0
// must be exact, because such a row costs no GEMM.
template <class Want>
void expect_close(const char* what, const PolicyData& data, const std::vector<double>& got, const Want& want) {
  double scale = 0;
  for (int64_t i = 0; i < data.tokens(); ++i) {
    if (data.mask[i]) scale = std::max(scale, std::abs(want(i)));
  }
  for (int64_t i = 0; i < data.tokens(); ++i) {
    if (!data.mask[i]) continue;
    const double bound = want(i) == 0 ? 0 : 1e-12 * std::abs(want(i)) + 1e-14 * scale;
    EXPECT_TRUE(std::abs(got[i] - want(i)) <= bound) << what << "[" << i << "] is " << got[i] << ", not " << want(i);
  }
}

void matches_oracle(const PolicyCase& policy_case, const PolicyData& data) {
  SCOPED_TRACE(policy_case.name);
  const oracle::PolicyValue want =
      oracle::compute_policy_loss(data.oracle_tokens(policy_case), policy_case.options, data.at);
  const Evaluated got = evaluate(policy_case, data);
  expect_close("per_token_loss", data, got.result.per_token_loss,
               [&](int64_t i) { return want.per_token_loss[i].value; });
  expect_close("d_logp", data, got.grads.logp, [&](int64_t i) { return want.d_logp(i); });
  if (policy_case.options.entropy_bonus != 0) {
    expect_close("d_entropy", data, got.grads.entropy, [&](int64_t i) { return want.d_entropy(i); });
  }
  const PolicyMetrics& metrics = got.result.metrics;
  if (metrics.tokens == 0) return;
  EXPECT_NEAR(metrics.clip_fraction_low, want.clip_fraction_low, 1e-12);
  EXPECT_NEAR(metrics.clip_fraction_high, want.clip_fraction_high, 1e-12);
}

// A NaN in a token that counts is not hidden: the loss is NaN, and the row is kept for the gradients.
TEST(PolicyLoss, NaNReachesTheLoss) {
  for (const PolicyCase& policy_case : policy_cases(12)) {
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
    }
  }
}

TEST(PolicyLoss, NaNEntropiesOfALargeBatch) {
  PolicyCase policy_case = plain_case(PolicyLossType::kGrpo);
  policy_case.options.top_entropy_quantile = 0.5;
  PolicyData data = data_of({std::vector<double>(100, 0.125)}, {1});
  for (size_t i = 0; i < 100; i += 3) data.at.entropy[i] = data.at.logp[i] = kNaN;
  const Evaluated got = evaluate(policy_case, data);
  EXPECT_TRUE(std::isnan(got.result.loss));
  EXPECT_TRUE(std::isnan(got.grads.logp[3]));
  EXPECT_FALSE(std::isnan(got.grads.logp[4]));
}

// A part with weight 0 adds nothing, even if it is infinite.
TEST(PolicyLoss, WithoutAWeightNothingIsInfinite) {
  PolicyCase dro = plain_case(PolicyLossType::kDro);
  dro.options.dro_tau = 0;
  PolicyCase topr = plain_case(PolicyLossType::kTopr);
  topr.options.topr_weight_pos = 0;
  PolicyCase cispo = plain_case(PolicyLossType::kCispo);
  cispo.options.epsilon_high = 0;
  PolicyCase vespo = plain_case(PolicyLossType::kVespo);
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

// With equal covariances the first token is taken; all are 0 if advantages are equal.
TEST(PolicyLoss, KlCovOfEqualAdvantagesTakesTheFirstToken) {
  PolicyCase c = plain_case(PolicyLossType::kKlCov);
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

// If rounding puts a certain token's log-probability above 0, the trust region treats it like 0.
TEST(PolicyLoss, TrustRegionOfATokenThatWasSure) {
  PolicyCase c = plain_case(PolicyLossType::kDppo);
  c.options.trust_region = TrustRegion::kKl;
  PolicyData data = data_of({{-1.6}}, {-1});
  data.at.logp[0] = -1.6;
  for (const double old : {0.0, 1.2e-7, 2.4e-7}) {
    data.old_logps[0] = old;
    EXPECT_EQ(evaluate(c, data).result.per_token_loss[0], 0) << old;
  }
}

constexpr PolicyLossType kClipped[] = {PolicyLossType::kGrpo, PolicyLossType::kBnpo,  PolicyLossType::kDrGrpo,
                                       PolicyLossType::kDapo, PolicyLossType::kLuspo, PolicyLossType::kPpo,
                                       PolicyLossType::kRloo};
// Some mantissas for which products of neighbours round to the same number, and some for which they do not.
constexpr double kAdvantages[] = {1, -1, 1.75, -1.75, 0.7, -0.7, 1.0000001, -1.9999999, 3.3, -3.3, 1e-3, -1e-3, 0};

// Returns `value`, its neighbours, and numbers a bit further away.
std::vector<double> around(double value) {
  std::vector<double> values = {value, value * (1 - 1e-9), value * (1 + 1e-9)};
  for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
    double next = value;
    for (int ulps = 0; ulps < 3; ++ulps) values.push_back(next = std::nextafter(next, towards));
  }
  return values;
}

// Compares with `set(options, value)` for the values around a bound.
template <class Set>
void matches_around(PolicyCase c, const PolicyData& data, double bound, const Set& set) {
  c.name += " around " + std::to_string(bound);
  for (const double value : around(bound)) {
    set(c.options, value);
    matches_oracle(c, data);
  }
}

TEST(PolicyBounds, ClipBounds) {
  const auto high = [](PolicyLoss& o, double bound) { o.epsilon_high = bound - 1; };
  for (const PolicyLossType variant : kClipped) {
    const PolicyCase plain = plain_case(variant);
    PolicyCase two_sided = plain;
    two_sided.options.delta = 1.5;
    for (const double advantage : kAdvantages) {
      for (const double log_ratio : {0.0625, 0.25, 0.5, 0.6875}) {
        const double above = std::exp(log_ratio);
        const PolicyData up = data_of({{log_ratio}, {0.125}}, {advantage, 1});
        matches_around(plain, up, above, high);
        matches_around(two_sided, up, above, high);
        matches_around(plain, up, above, [](PolicyLoss& o, double bound) { o.delta = bound; });
        matches_around(plain, up, above,
                       [](PolicyLoss& o, double bound) { o.delta = bound, o.epsilon_high = bound - 1; });
        const PolicyData down = data_of({{-log_ratio}, {0.125}}, {advantage, 1});
        matches_around(plain, down, std::exp(-log_ratio),
                       [](PolicyLoss& o, double bound) { o.epsilon_low = 1 - bound; });
      }
    }
  }
  for (const double advantage : kAdvantages) {
    for (const double log_ratio : {-0.5, 0.5, 1.5, 3.0}) {
      matches_around(plain_case(PolicyLossType::kCispo), data_of({{log_ratio}, {0.125}}, {advantage, 1}),
                     std::exp(log_ratio), [](PolicyLoss& o, double bound) { o.epsilon_high = bound; });
    }
  }
}

TEST(PolicyBounds, LogRatioClamp) {
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    for (const double log_ratio : {0.25, -0.25, 1.5, -1.5, 25.0, -25.0, 40.0, -800.0, 800.0}) {
      for (const double advantage : {1.7, -1.7, 0.0}) {
        const PolicyData data = data_of({{log_ratio}, {0.125, 0.25}}, {advantage, 1});
        PolicyCase c = plain_case(variant);
        matches_around(c, data, std::abs(log_ratio),
                       [](PolicyLoss& o, double clamp) { o.log_ratio_clamp = std::min(clamp, 300.0); });
        c.options.log_ratio_clamp = std::nullopt;
        matches_oracle(c, data);
      }
    }
  }
}

// Shares that are a whole number of tokens: the token at the quantile is kept.
TEST(PolicyBounds, SharesOfElevenTokens) {
  PolicyData data = data_of({std::vector<double>(11, 0.125)}, {1});
  for (size_t i = 0; i < 11; ++i) data.at.entropy[i] = 0.1 * static_cast<double>(i * 7 % 11);
  PolicyCase c = plain_case(PolicyLossType::kGrpo);
  for (int tenths = 1; tenths < 10; ++tenths) {
    c.options.top_entropy_quantile = tenths / 10.0;
    const std::vector<double> losses = evaluate(c, data).result.per_token_loss;
    EXPECT_EQ(11 - std::count(losses.begin(), losses.end(), 0.0), tenths + 1) << tenths;
  }
}

// Every result stays finite in float64, even if two weights are at their maximum and multiply.
TEST(PolicyBounds, NoWeightIsInfinite) {
  std::vector<PolicyCase> cases = policy_cases(12);
  PolicyCase vespo = plain_case(PolicyLossType::kVespo);
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
        // The slope of K ρ is a difference of two numbers near e^d ρ, so neither side has correct digits
        // here.
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

TEST(PolicyBounds, SamplerBounds) {
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    for (const auto mode : {SamplerCorrection::kTokenTruncate, SamplerCorrection::kTokenMask,
                            SamplerCorrection::kSequenceTruncate, SamplerCorrection::kSequenceMask}) {
      const bool of_token = mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kTokenMask;
      if (variant == PolicyLossType::kVespo && !of_token) continue;
      PolicyCase c = plain_case(variant);
      c.with_sampling = true;
      c.options.sampler_correction = mode;
      // Old minus sampling: 0.25 and 0.5 in the first sequence, -0.25 and unknown in the second.
      PolicyData data = data_of({{0.125, -0.125}, {0.25, 0.0625}}, {1.7, -0.3});
      for (const size_t i : {0, 1}) data.sampling_logps[i] -= i == 0 ? 0.25 : 0.5;
      data.sampling_logps[2] += 0.25;
      data.sampling_logps[3] = kNaN;
      for (const bool on_policy : {false, true}) {
        c.on_policy = on_policy;
        const double most = on_policy ? (of_token ? 0.375 : 0.75) : (of_token ? 0.25 : 0.75);
        const auto clip_max = [](PolicyLoss& o, double bound) { o.sampler_clip_max = bound; };
        matches_around(c, data, std::exp(most), clip_max);
        matches_around(c, data, std::exp(on_policy ? 0.0 : -0.25), [](PolicyLoss& o, double bound) {
          o.sampler_clip_min = bound, o.sampler_clip_max = std::nullopt;
        });
        // An unknown value has r = 1, and is clamped and masked like any other.
        matches_around(c, data, 1, clip_max);
      }
    }
  }
}

TEST(PolicyBounds, OffPolicyThreshold) {
  PolicyData data = data_of({{-0.5, -0.25, -0.25, -1}, {0.5, 0.25}, {}, {-0.75}}, {-1, -1, kNaN, 0});
  data.sampling_logps[3] = kNaN;
  data.sampling_logps[0] += 1;
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    PolicyCase c = plain_case(variant);
    for (const bool sampler : {false, true}) {
      c.with_sampling = sampler;
      // Mean drift: (0.5 + 0.25 + 0.25 + 1) / 4; with the sampler (1.5 + 0.25 + 0.25 + 0) / 4; -0.375 in the
      // second.
      for (const double drift : {0.5, -0.375}) {
        matches_around(c, data, drift, [](PolicyLoss& o, double bound) { o.off_policy_mask_threshold = bound; });
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
        PolicyCase c = plain_case(variant);
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

}  // namespace policy_loss_test
}  // namespace logitless::testing
