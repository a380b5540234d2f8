// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "policy_evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "loss/policy.h"
#include "support/calls.h"

namespace logitless::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Both sides are short formulas in float64.
constexpr double kRelative = 1e-12;

void expect_close(const std::string& what, double got, double want, double scale = 0) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
    return;
  }
  EXPECT_TRUE(std::abs(got - want) <= kRelative * std::abs(want) + 0.01 * kRelative * scale)
      << what << " is " << ::testing::PrintToString(got) << ", not " << ::testing::PrintToString(want);
}

// Numbers that came from sums may have lost digits to cancellation: `scale` is the largest of them. An exact
// 0 is an exact 0: the row costs no GEMM.
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

}  // namespace

Evaluated evaluate(const PolicyCase& policy_case, const PolicyData& data, Calls calls) {
  const PolicyLoss task = with(policy_case.options, data.batch(policy_case));
  loss::CompletionLoss loss(task, data.offsets, 3);
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
      EXPECT_EQ(loss.batch().tokens.targets[i] >= 0, data.mask[i] != 0);
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

void matches_oracle(const PolicyCase& policy_case, const PolicyData& data) {
  SCOPED_TRACE(policy_case.name);
  const oracle::PolicyValue want =
      oracle::compute_policy_loss(data.oracle_tokens(policy_case), policy_case.options, data.at);
  const Evaluated got = evaluate(policy_case, data);
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
  expect_close("mean_teacher_kl", metrics.mean_teacher_kl, want.mean_teacher_kl.value, 1);
  expect_close("mean_entropy", metrics.mean_entropy, want.mean_entropy.value);
  expect_close("clip_fraction_low", metrics.clip_fraction_low, want.clip_fraction_low);
  expect_close("clip_fraction_high", metrics.clip_fraction_high, want.clip_fraction_high);
  expect_close("clip_fraction", metrics.clip_fraction, want.clip_fraction);
}

PolicyCase one_case(PolicyLossType variant, const std::string& name) {
  PolicyCase result = plain_case(variant);
  result.name += ", " + name;
  return result;
}

}  // namespace logitless::testing
