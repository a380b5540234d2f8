// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy losses as functions of token statistics, against the oracle: every variant and option, and every side of
// every bound.
#include "loss/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "policy_cases.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Both sides are short formulas in float64.
constexpr double kRelative = 1e-12;

constexpr PolicyVariant kClipped[] = {PolicyVariant::kGrpo, PolicyVariant::kBnpo,  PolicyVariant::kDrGrpo,
                                      PolicyVariant::kDapo, PolicyVariant::kLuspo, PolicyVariant::kPpo,
                                      PolicyVariant::kRloo};
// Mantissas at which products of neighbours round to the same number, and at which they do not.
constexpr double kAdvantages[] = {1, -1, 1.75, -1.75, 0.7, -0.7, 1.0000001, -1.9999999, 3.3, -3.3, 1e-3, -1e-3, 0};

struct Evaluated {
  PolicyResult result;
  TokenGrads grads;
};

// How many rows evaluate() gets at a time.
enum class Calls { kOne, kOneASequence, kOneAToken };

Evaluated evaluate(const PolicyCase& policy_case, const PolicyData& data, Calls calls = Calls::kOne) {
  loss::PolicyLoss loss(data.batch(policy_case), policy_case.options, data.offsets, 3);
  const auto size = static_cast<size_t>(data.tokens());
  TokenStats stats;
  stats.logp = data.at.logp;
  if (loss.needs().entropy) stats.entropy = data.at.entropy;
  Evaluated out;
  out.grads.logp.assign(size, kNaN);
  if (loss.gradients().entropy) out.grads.entropy.assign(size, kNaN);
  std::vector<int64_t> rows;
  const auto flush = [&] {
    if (!rows.empty()) loss.evaluate(rows, stats, out.grads);
    rows.clear();
  };
  for (size_t s = 0; s + 1 < data.offsets.size(); ++s) {
    for (int64_t i = data.offsets[s]; i < data.offsets[s + 1]; ++i) {
      EXPECT_EQ(loss.targets()[i] >= 0, data.mask[i] != 0);
      if (!data.mask[i]) {
        stats.logp[i] = 0;  // as the engine has it
        if (!stats.entropy.empty()) stats.entropy[i] = 0;
        continue;
      }
      rows.push_back(i);
      if (calls == Calls::kOneAToken) flush();
    }
    if (calls == Calls::kOneASequence) flush();
  }
  flush();
  out.result = loss.result(stats, Plan());
  return out;
}

void expect_close(const std::string& what, double got, double want, double scale = 0) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
    return;
  }
  EXPECT_TRUE(std::abs(got - want) <= kRelative * std::abs(want) + 0.01 * kRelative * scale)
      << what << " is " << ::testing::PrintToString(got) << ", not " << ::testing::PrintToString(want);
}

// Numbers that came from sums may have lost digits to cancellation: `scale` is the largest of them. An exact 0 is an
// exact 0: the row costs no GEMM.
template <class Want>
void expect_all_close(const std::string& what, const PolicyData& data, const std::vector<double>& got,
                      const Want& want) {
  ASSERT_EQ(static_cast<int64_t>(got.size()), data.tokens()) << what;
  double scale = 0;
  for (int64_t i = 0; i < data.tokens(); ++i) {
    if (data.mask[i]) scale = std::max(scale, std::abs(want(i)));
  }
  for (int64_t i = 0; i < data.tokens(); ++i) {
    if (!data.mask[i]) continue;
    expect_close(what + "[" + std::to_string(i) + "]", got[i], want(i), want(i) == 0 ? 0 : scale);
  }
}

void matches_oracle(const PolicyCase& policy_case, const PolicyData& data, Calls calls = Calls::kOne) {
  SCOPED_TRACE(policy_case.name);
  const oracle::PolicyLoss want =
      oracle::compute_policy_loss(data.oracle_tokens(policy_case), policy_case.options, data.at);
  const Evaluated got = evaluate(policy_case, data, calls);
  double loss_scale = 0;
  for (const auto& loss : want.per_token_loss) loss_scale = std::max(loss_scale, std::abs(loss.value));
  expect_close("loss", got.result.loss, want.loss.value, loss_scale * std::abs(policy_case.options.loss_scale));
  expect_all_close("per_token_loss", data, got.result.per_token_loss,
                   [&](int64_t i) { return want.per_token_loss[i].value; });
  expect_all_close("d_logp", data, got.grads.logp, [&](int64_t i) { return want.d_logp(i); });
  if (policy_case.options.entropy_bonus != 0) {
    expect_all_close("d_entropy", data, got.grads.entropy, [&](int64_t i) { return want.d_entropy(i); });
  }
  for (int64_t i = 0; i < data.tokens(); ++i) {
    EXPECT_EQ(got.result.per_token_logps[i], data.mask[i] ? data.at.logp[i] : 0);
    if (!data.mask[i]) {
      EXPECT_EQ(got.result.per_token_loss[i], 0);
    }
  }
  const PolicyMetrics& metrics = got.result.metrics;
  EXPECT_EQ(metrics.tokens, want.tokens);
  expect_close("mean_ratio", metrics.mean_ratio, want.mean_ratio.value);
  expect_close("mean_kl", metrics.mean_kl, want.mean_kl.value, 1);
  expect_close("mean_logp", metrics.mean_logp, want.mean_logp.value);
  expect_close("mean_entropy", metrics.mean_entropy, want.mean_entropy.value);
  expect_close("clip_fraction_low", metrics.clip_fraction_low, want.clip_fraction_low);
  expect_close("clip_fraction_high", metrics.clip_fraction_high, want.clip_fraction_high);
  expect_close("clip_fraction", metrics.clip_fraction, want.clip_fraction);
}

// `value` and its neighbours, then a bit further away.
std::vector<double> around(double value) {
  std::vector<double> values = {value, value * (1 - 1e-9), value * (1 + 1e-9)};
  for (const double towards : {-HUGE_VAL, HUGE_VAL}) {
    double next = value;
    for (int ulps = 0; ulps < 3; ++ulps) values.push_back(next = std::nextafter(next, towards));
  }
  return values;
}

PolicyCase one_case(PolicyVariant variant, const std::string& name) {
  PolicyCase result = plain_case(variant);
  result.name += ", " + name;
  return result;
}

TEST(PolicyLoss, EveryVariantAndOption) {
  for (const PolicyCase& policy_case : policy_cases(40)) {
    for (const uint64_t seed : {1, 2, 3, 4}) matches_oracle(policy_case, mixed_data(seed));
  }
}

TEST(PolicyLoss, ChunksOfWholeGroupsChangeNoBit) {
  for (const PolicyCase& policy_case : policy_cases(10)) {
    SCOPED_TRACE(policy_case.name);
    const PolicyData data = mixed_data(1);
    const loss::PolicyLoss loss(data.batch(policy_case), policy_case.options, data.offsets, 3);
    const bool of_batch = policy_case.options.top_entropy_quantile < 1;
    if (of_batch) continue;
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
    const PolicyOptions& options = policy_case.options;
    const loss::PolicyLoss loss(data.batch(policy_case), options, data.offsets, 3);
    const bool of_batch = options.top_entropy_quantile < 1;
    const bool of_sequence = options.variant == PolicyVariant::kRloo || options.variant == PolicyVariant::kVespo ||
                             options.importance_sampling_level == ImportanceLevel::kSequence ||
                             options.off_policy_mask_threshold.has_value() ||
                             options.sampler_correction == SamplerCorrection::kSequenceTruncate ||
                             options.sampler_correction == SamplerCorrection::kSequenceMask;
    ASSERT_EQ(loss.groups().empty(), !of_batch && !of_sequence);
    if (loss.groups().empty()) continue;
    for (const auto& [a, b, same_sequence] : {std::tuple(0, 4, true), {6, 9, true}, {4, 5, false}, {0, 9, false}}) {
      EXPECT_EQ(loss.groups()[a] == loss.groups()[b], of_batch || same_sequence);
    }
  }
}

TEST(PolicyLoss, ClipBounds) {
  for (const PolicyVariant variant : kClipped) {
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
          if (1 - c.options.epsilon_low != bound) continue;  // of the smaller numbers every second one cannot be
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

TEST(PolicyLoss, ClipBoundsOfSequences) {
  // Sums and means of these are exact.
  const std::vector<std::vector<double>> ratios = {{0.5, 0.25, 0.125, 0.125}, {}, {-0.5, -0.25, 0, -0.25}};
  for (const double advantage : kAdvantages) {
    const PolicyData data = data_of(ratios, {advantage, kNaN, advantage});
    for (const bool rloo : {false, true}) {
      PolicyCase c = one_case(rloo ? PolicyVariant::kRloo : PolicyVariant::kGrpo, "of sequences");
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

TEST(PolicyLoss, LogRatioClamp) {
  for (const PolicyVariant variant : all_policy_variants()) {
    for (const double log_ratio : {0.25, -0.25, 1.5, -1.5, 25.0, -25.0, 40.0, -800.0, 800.0}) {
      for (const double advantage : {1.7, -1.7, 0.0}) {
        const PolicyData data = data_of({{log_ratio}, {0.125, 0.25}}, {advantage, 1});
        PolicyCase c = one_case(variant, "log ratio " + std::to_string(log_ratio));
        matches_oracle(c, data);
        for (const double clamp : around(std::abs(log_ratio))) {
          c.options.log_ratio_clamp = std::min(clamp, 700.0);
          matches_oracle(c, data);
        }
        c.options.log_ratio_clamp = std::nullopt;
        matches_oracle(c, data);
        c.options.beta = 0.5;  // d = -0.25
        for (const double clamp : around(0.25)) {
          c.options.log_ratio_clamp = clamp;
          matches_oracle(c, data);
        }
      }
    }
  }
}

TEST(PolicyLoss, CispoBound) {
  for (const double advantage : kAdvantages) {
    for (const double log_ratio : {-0.5, 0.5, 1.5, 3.0}) {
      for (const double bound : around(std::exp(log_ratio))) {
        PolicyCase c = one_case(PolicyVariant::kCispo, "bound at " + std::to_string(log_ratio));
        c.options.epsilon_high = bound;
        matches_oracle(c, data_of({{log_ratio}, {0.125}}, {advantage, 1}));
      }
    }
  }
}

TEST(PolicyLoss, SamplerBounds) {
  for (const PolicyVariant variant : all_policy_variants()) {
    for (const auto mode : {SamplerCorrection::kTokenTruncate, SamplerCorrection::kTokenMask,
                            SamplerCorrection::kSequenceTruncate, SamplerCorrection::kSequenceMask}) {
      const bool of_token = mode == SamplerCorrection::kTokenTruncate || mode == SamplerCorrection::kTokenMask;
      if (variant == PolicyVariant::kVespo && !of_token) continue;
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

TEST(PolicyLoss, OffPolicyThreshold) {
  PolicyData data = data_of({{-0.5, -0.25, -0.25, -1}, {0.5, 0.25}, {}, {-0.75}}, {-1, -1, kNaN, 0});
  data.sampling_logps[3] = kNaN;
  data.sampling_logps[0] += 1;
  for (const PolicyVariant variant : all_policy_variants()) {
    PolicyCase c = one_case(variant, "off-policy mask");
    for (const bool sampler : {false, true}) {
      c.with_sampling = sampler;
      // Mean drift: (0.5 + 0.25 + 0.25 + 1) / 4; with the sampler (1.5 + 0.25 + 0.25 + 0) / 4; -0.375 in the second.
      for (const double drift : {0.5, -0.375}) {
        for (const double threshold : around(drift)) {
          c.options.off_policy_mask_threshold = threshold;
          matches_oracle(c, data);
        }
      }
    }
  }
}

TEST(PolicyLoss, EntropyQuantile) {
  PolicyData data = data_of({{0.125, 0.25, 0.125}, {}, {-0.125, 0.5}}, {1, kNaN, -1});
  for (const PolicyVariant variant : all_policy_variants()) {
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
      if (policy_case.options.top_entropy_quantile < 1) continue;
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
  PolicyCase policy_case = one_case(PolicyVariant::kGrpo, "entropies of NaN");
  policy_case.options.top_entropy_quantile = 0.5;
  PolicyData data = data_of({std::vector<double>(100, 0.125)}, {1});
  for (size_t i = 0; i < 100; i += 3) data.at.entropy[i] = data.at.logp[i] = kNaN;
  const Evaluated got = evaluate(policy_case, data);
  EXPECT_TRUE(std::isnan(got.result.loss));
  EXPECT_TRUE(std::isnan(got.grads.logp[3]));
  EXPECT_FALSE(std::isnan(got.grads.logp[4]));
}

TEST(PolicyLoss, NoTokens) {
  for (const PolicyCase& policy_case : policy_cases(10)) {
    PolicyData data = mixed_data(1);
    for (size_t i = 0; i < data.mask.size(); ++i) {
      data.mask[i] = 0;
      data.old_logps[i] = data.ref_logps[i] = data.sampling_logps[i] = data.token_advantages[i] = kNaN;
      data.ids[i] = -1;
    }
    data.sequence_advantages.assign(data.sequence_advantages.size(), kNaN);
    matches_oracle(policy_case, data);
    EXPECT_EQ(evaluate(policy_case, data).result.loss, 0);
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
