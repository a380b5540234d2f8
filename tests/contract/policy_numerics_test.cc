// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// policy_loss where numbers are extreme or not numbers, and on the same sequences packed and padded.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "support/calls.h"
#include "support/policy_cases.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Context small_context(PlanKind plan = PlanKind::kAuto) {
  ContextOptions options;
  options.threads = 1;
  options.row_tile = 16;
  options.vocab_tile = 64;
  options.plan = plan;
  return Context(options);
}

template <class T>
ConstVector view(const std::vector<T>& values) {
  return {values.data(), static_cast<int64_t>(values.size())};
}

// 20 tokens in five sequences, and what a batch needs beside them.
struct Call {
  explicit Call(DType dtype, double logit_scale = 1) : inputs(spec(dtype)), outputs(inputs, {}) {
    for (int64_t v = 0; v < inputs.spec.vocab; ++v) {
      for (int64_t h = 0; h < inputs.spec.hidden; ++h) inputs.set_weight(v, h, logit_scale * inputs.weight_at(v, h));
    }
    TokenOptions options;
    options.ignore_index = -100;
    stats =
        compute_token_stats(small_context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), options);
    std::mt19937_64 random(3);
    std::normal_distribution<double> normal(0, 1);
    for (int64_t i = 0; i < inputs.spec.tokens; ++i) {
      old_logps.push_back(stats.logp[i] + 0.1 * normal(random));
      ref_logps.push_back(stats.logp[i] + 0.1 * normal(random));
      sampling_logps.push_back(stats.logp[i] + 0.1 * normal(random));
      teacher_logps.push_back(stats.logp[i] + (i % 2 == 0 ? 0.2 : -0.3));
      token_advantages.push_back(normal(random));
    }
    advantages = {1, -1, 0.5, -0.5, 2};
  }
  static InputSpec spec(DType dtype) {
    InputSpec spec;
    spec.tokens = 20;
    spec.offsets = {0, 3, 9, 10, 12, 20};
    spec.dtype = dtype;
    return spec;
  }

  PolicyBatch batch(const PolicyCase& policy_case) const {
    PolicyBatch batch;
    batch.chosen_ids = inputs.targets_view();
    if (!policy_case.teacher_alone) {
      batch.advantages = view(policy_case.advantages_per_token ? token_advantages : advantages);
    }
    if (policy_case.options.teacher_weight != 0) batch.teacher_logps = view(teacher_logps);
    if (!policy_case.on_policy) batch.old_logps = view(old_logps);
    if (policy_case.options.beta != 0) batch.ref_logps = view(ref_logps);
    if (policy_case.with_sampling) batch.sampling_logps = view(sampling_logps);
    const bool scored =
        policy_case.options.loss_type == PolicyLossType::kTopr || policy_case.options.positive_nll_weight != 0;
    if (scored) batch.scores = view(advantages);
    return batch;
  }
  PolicyResult run(const PolicyCase& policy_case, const Context& context = small_context()) {
    return policy_loss(context, inputs.hidden_view(), inputs.head_view(), batch(policy_case), policy_case.options,
                       outputs.gradients());
  }

  Inputs inputs;
  GradientOutputs outputs;
  TokenStats stats;
  std::vector<double> old_logps, ref_logps, sampling_logps, teacher_logps, token_advantages, advantages;
};

bool all_finite(const HostTensor& tensor) {
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      if (!std::isfinite(tensor.get(r, c))) return false;
    }
  }
  return true;
}

bool is_nan_row(const HostTensor& tensor, int64_t row) {
  for (int64_t c = 0; c < tensor.cols(); ++c) {
    if (!std::isnan(tensor.get(row, c))) return false;
  }
  return true;
}

// Weights of e^300 and their products, which float64 holds but gradients in float32 do not.
bool has_weights_beyond_float32(const PolicyLoss& options) {
  const bool of_kl = options.beta != 0 && (options.kl_estimator == KlEstimator::kK3 || options.use_bias_correction_kl);
  const bool of_sampler =
      options.sampler_correction != SamplerCorrection::kNone &&
      (!options.sampler_clip_max || options.sampler_correction == SamplerCorrection::kGeometricMask);
  return (of_kl && !options.log_ratio_clamp) || of_sampler;
}

template <class Result>
void expect_finite_result(const Result& result, const PolicyCase& policy_case) {
  EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
  EXPECT_TRUE(std::isfinite(result.metrics.mean_ratio)) << result.metrics.mean_ratio;
  EXPECT_TRUE(std::isfinite(result.metrics.mean_logp));
  EXPECT_EQ(std::isfinite(result.metrics.mean_kl), policy_case.options.beta != 0);
  for (const double loss : result.per_token_loss) EXPECT_TRUE(std::isfinite(loss)) << loss;
  for (const double logp : result.per_token_logps) EXPECT_TRUE(logp <= 0) << logp;
}

void expect_finite(Call& call, const PolicyCase& policy_case) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    expect_finite_result(call.run(policy_case, small_context(plan)), policy_case);
    if (call.inputs.spec.dtype != DType::kFloat64 && has_weights_beyond_float32(policy_case.options)) continue;
    EXPECT_TRUE(all_finite(call.outputs.d_hidden()));
    EXPECT_TRUE(all_finite(call.outputs.d_weight()));
    EXPECT_TRUE(all_finite(call.outputs.d_bias()));
  }
}

// Logits of ±10⁴ against policies that were as sure of something else: log ratios of ±10⁴.
TEST(PolicyNumerics, ExtremeLogits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64}) {
    Call call(dtype, 1500);
    double largest = 0, least_logp = 0, largest_logp = -INFINITY;
    for (size_t i = 0; i < call.stats.logp.size(); ++i) {
      const double logp = call.stats.logp[i];
      largest = std::max(largest, call.stats.max_logit[i]);
      least_logp = std::min(least_logp, logp);
      largest_logp = std::max(largest_logp, logp);
      // Between e^88 and e^300 a ratio without a clamp is finite, but float32 gradients are not.
      call.old_logps[i] = i % 3 == 0 ? -0.01 : i % 3 == 1 && logp > -1e4 ? -15000.0 : logp + 0.01;
      call.ref_logps[i] = i % 4 < 2 ? -0.01 : -15000.0;
      call.sampling_logps[i] = i % 5 < 2 ? -0.01 : -15000.0;
      call.teacher_logps[i] = i % 7 < 3 ? -0.01 : -15000.0;
    }
    ASSERT_GT(largest, 1e4);
    ASSERT_LT(least_logp, -1e4);
    ASSERT_GT(largest_logp, -1e-6);
    for (PolicyCase policy_case : policy_cases(0)) {
      for (const std::optional<double> clamp : {std::optional(20.0), std::optional<double>()}) {
        SCOPED_TRACE(policy_case.name + (clamp ? ", clamp 20" : ", no clamp"));
        policy_case.options.log_ratio_clamp = clamp;
        expect_finite(call, policy_case);
      }
    }
  }
}

// The same from finished logits: every vocabulary entry at one of both ends, or somewhere between.
TEST(PolicyNumerics, ExtremeFinishedLogits) {
  Call call(DType::kFloat32);
  std::mt19937_64 random(11);
  std::vector<float> logits(20 * 150), dlogits(logits.size());
  for (float& logit : logits) logit = std::array{-1e4f, 1e4f, 0.0f, 9990.0f, -9990.0f}[random() % 5];
  for (size_t i = 0; i < 20; ++i) {
    call.old_logps[i] = i % 3 == 0 ? -0.01 : -2e4;
    call.ref_logps[i] = i % 4 < 2 ? -0.01 : -2e4;
    call.sampling_logps[i] = i % 5 < 2 ? -0.01 : -2e4;
    call.teacher_logps[i] = i % 7 < 3 ? -0.01 : -2e4;
  }
  for (PolicyCase policy_case : policy_cases(0)) {
    for (const std::optional<double> clamp : {std::optional(20.0), std::optional<double>()}) {
      SCOPED_TRACE(policy_case.name + (clamp ? ", clamp 20" : ", no clamp"));
      policy_case.options.log_ratio_clamp = clamp;
      const PolicyResult result =
          policy_loss(small_context(), FinishedLogits(logits.data(), 5, 4, 150), call.batch(policy_case),
                      policy_case.options, LogitsGradient(dlogits.data(), 5, 4, 150));
      expect_finite_result(result, policy_case);
      EXPECT_LT(*std::min_element(result.per_token_logps.begin(), result.per_token_logps.end()), -1e4);
      if (has_weights_beyond_float32(policy_case.options)) continue;
      for (const float gradient : dlogits) ASSERT_TRUE(std::isfinite(gradient));
    }
  }
}

TEST(PolicyNumerics, NaNInOneRowReachesItsSequenceAtMost) {
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    for (const bool of_sequence : {false, true}) {
      for (const PolicyLossType variant : all_of<PolicyLossType>()) {
        PolicyCase policy_case = plain_case(variant);
        SCOPED_TRACE(policy_case.name);
        const bool coupled =
            variant == PolicyLossType::kRloo || variant == PolicyLossType::kVespo || variant == PolicyLossType::kGmpo;
        if (of_sequence && coupled) continue;
        if (of_sequence) policy_case.options.importance_sampling_level = ImportanceLevel::kSequence;
        Call call(DType::kFloat32);
        call.inputs.hidden.set(5, 2, kNaN);
        const PolicyResult result = call.run(policy_case, small_context(plan));
        EXPECT_TRUE(std::isnan(result.loss));
        EXPECT_TRUE(is_nan_row(call.outputs.d_hidden(), 5));
        EXPECT_TRUE(std::isnan(call.outputs.d_weight().get(0, 0)));
        for (int64_t i = 0; i < 20; ++i) {
          const bool in_sequence = i >= 3 && i < 9;
          if (i == 5 || (in_sequence && (coupled || of_sequence))) continue;
          EXPECT_TRUE(std::isfinite(result.per_token_loss[i])) << i;
          for (int64_t h = 0; h < 19; ++h) ASSERT_TRUE(std::isfinite(call.outputs.d_hidden().get(i, h))) << i;
        }
      }
    }
  }
}

TEST(PolicyNumerics, RoundedLogits) {
  for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
    Call call(DType::kFloat32);
    TokenOptions options;
    options.round_logits_to = type;
    const TokenStats rounded = compute_token_stats(small_context(), call.inputs.hidden_view(), call.inputs.head_view(),
                                                   call.inputs.targets_view(), options);
    EXPECT_NE(rounded.logp, call.stats.logp);
    PolicyCase policy_case = plain_case(PolicyLossType::kGrpo);
    policy_case.options.token.round_logits_to = type;
    EXPECT_EQ(call.run(policy_case).per_token_logps, rounded.logp);
  }
}

// The same sequences as [B, T] with masked ends, in another tiling: equal but for the order of sums.
TEST(PolicyNumerics, PackedAndPaddedAreEqual) {
  constexpr int64_t kLongest = 8, kSequences = 5, kHidden = 19;
  for (const PolicyCase& policy_case : policy_cases(3)) {
    SCOPED_TRACE(policy_case.name);
    Call packed(DType::kFloat64);
    const PolicyResult want = packed.run(policy_case);
    const std::vector<int64_t>& offsets = packed.inputs.spec.offsets;
    HostTensor hidden(DType::kFloat64, kSequences * kLongest, kHidden);
    HostTensor d_hidden(DType::kFloat64, kSequences * kLongest, kHidden);
    const auto column = [](double garbage) { return std::vector<double>(kSequences * kLongest, garbage); };
    std::vector<double> old_logps = column(kNaN), ref_logps = column(INFINITY), sampling_logps = column(-INFINITY),
                        teacher_logps = column(kNaN), token_advantages = column(kNaN);
    std::vector<int32_t> ids(kSequences * kLongest, -3);
    std::vector<uint8_t> mask(kSequences * kLongest, 0);
    const auto row_of = [&](int64_t s, int64_t i) { return s * kLongest + i - offsets[s]; };
    for (int64_t s = 0; s < kSequences; ++s) {
      for (int64_t i = offsets[s]; i < offsets[s + 1]; ++i) {
        const int64_t row = row_of(s, i);
        for (int64_t h = 0; h < kHidden; ++h) hidden.set(row, h, packed.inputs.hidden.get(i, h));
        ids[row] = static_cast<int32_t>(packed.inputs.targets.data()[i]);
        mask[row] = 1;
        old_logps[row] = packed.old_logps[i];
        ref_logps[row] = packed.ref_logps[i];
        sampling_logps[row] = packed.sampling_logps[i];
        teacher_logps[row] = packed.teacher_logps[i];
        token_advantages[row] = packed.token_advantages[i];
      }
    }
    PolicyBatch batch;
    batch.chosen_ids = Targets(std::span<const int32_t>(ids));
    if (!policy_case.teacher_alone) {
      batch.advantages = view(policy_case.advantages_per_token ? token_advantages : packed.advantages);
    }
    if (policy_case.options.teacher_weight != 0) batch.teacher_logps = view(teacher_logps);
    if (!policy_case.on_policy) batch.old_logps = view(old_logps);
    if (policy_case.options.beta != 0) batch.ref_logps = view(ref_logps);
    if (policy_case.with_sampling) batch.sampling_logps = view(sampling_logps);
    batch.scores = packed.batch(policy_case).scores;
    batch.mask = mask;
    GradientOutputs outputs(packed.inputs, {});
    Gradients gradients = outputs.gradients();
    gradients.d_hidden = Matrix(static_cast<double*>(d_hidden.output().data), kSequences * kLongest, kHidden);
    const PolicyResult got = policy_loss(small_context(), HiddenStates(hidden.view(), kSequences),
                                         packed.inputs.head_view(), batch, policy_case.options, gradients);
    EXPECT_NEAR(got.loss, want.loss, 1e-12);
    EXPECT_EQ(got.metrics.tokens, want.metrics.tokens);
    EXPECT_NEAR(got.metrics.mean_ratio, want.metrics.mean_ratio, 1e-12);
    EXPECT_NEAR(got.metrics.clip_fraction, want.metrics.clip_fraction, 1e-12);
    for (int64_t s = 0; s < kSequences; ++s) {
      for (int64_t i = offsets[s]; i < offsets[s] + kLongest; ++i) {
        const bool inside = i < offsets[s + 1];
        for (int64_t h = 0; h < kHidden; ++h) {
          const double expected = inside ? packed.outputs.d_hidden().get(i, h) : 0;
          ASSERT_NEAR(d_hidden.get(row_of(s, i), h), expected, inside ? 1e-12 : 0) << s << ", " << i;
        }
        if (inside) {
          EXPECT_NEAR(got.per_token_loss[row_of(s, i)], want.per_token_loss[i], 1e-12);
        }
      }
    }
    for (int64_t h = 0; h < kHidden; ++h) {
      for (int64_t v = 0; v < packed.inputs.spec.vocab; ++v) {
        ASSERT_NEAR(outputs.d_weight().get(h, v), packed.outputs.d_weight().get(h, v), 1e-12);
      }
    }
  }
}

}  // namespace
}  // namespace logitless::testing
