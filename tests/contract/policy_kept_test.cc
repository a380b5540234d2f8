// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses whose probabilities are over the ids that a sampler kept, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/policy_cases.h"
#include "support/set_problem.h"

namespace logitless::testing {
namespace {

constexpr int64_t kN = SetProblem::kTokens, kV = SetProblem::kVocab;

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "";
}

// Each row has 1 to 9 ids in no order, of which the last but one, or the only one, was chosen; row 5 has one
// id twice, and rows 3 and 4 take no part.
struct KeptBatch {
  std::vector<int64_t> ids, offsets = {0}, chosen;
  std::vector<double> advantages, old_logps, ref_logps;
  std::vector<uint8_t> mask;

  KeptBatch() {
    for (int64_t row = 0; row < kN; ++row) {
      const int64_t count = 1 + row % 9;
      for (int64_t k = 0; k < count; ++k) ids.push_back((row * 31 + k * 67) % kV);
      chosen.push_back(ids[ids.size() - (count > 1 ? 2 : 1)]);
      if (row == 5) ids.push_back(chosen.back());
      mask.push_back(row != 3 && row != 4);
      if (row == 4) chosen.back() = kV + 9;  // not read
      offsets.push_back(static_cast<int64_t>(ids.size()));
      advantages.push_back(row % 3 - 0.75);
      old_logps.push_back(-0.2 - 0.1 * static_cast<double>(row % 11));
      ref_logps.push_back(-0.3 - 0.1 * static_cast<double>(row % 5));
    }
  }
  static ConstVector vector(const std::vector<double>& values) {
    return ConstVector(values.data(), static_cast<int64_t>(values.size()));
  }
  PolicyBatch batch(const PolicyLoss& options) const {
    PolicyBatch out;
    out.chosen_ids = Targets(std::span<const int64_t>(chosen));
    out.advantages = vector(advantages);
    out.old_logps = vector(old_logps);
    if (options.beta != 0) out.ref_logps = vector(ref_logps);
    out.mask = mask;
    out.kept = IdSets(Targets(std::span<const int64_t>(ids)), offsets);
    return out;
  }
};

std::vector<PolicyLoss> all_options(const TokenOptions& token) {
  std::vector<PolicyLoss> out;
  for (const PolicyLossType variant : {PolicyLossType::kGrpo, PolicyLossType::kCispo, PolicyLossType::kReinforce,
                                       PolicyLossType::kRloo, PolicyLossType::kVespo}) {
    out.emplace_back().loss_type = variant;
  }
  out.emplace_back().importance_sampling_level = ImportanceLevel::kSequence;
  out.emplace_back().beta = 0.3;
  for (PolicyLoss& options : out) options.token = token;
  return out;
}

void expect_matches(const SetCase& given, const KeptBatch& kept) {
  const SetProblem problem(given);
  const Context context(given.context());
  for (const PolicyLoss& options : all_options(problem.token())) {
    SCOPED_TRACE(given.name() + ", " + name_of(options.loss_type) + ", " + name_of(options.importance_sampling_level));
    const PolicyBatch batch = kept.batch(options);
    const oracle::SetLogits logits = problem.oracle_logits(options.token, true);
    const oracle::RowIds ids = oracle::read_sets(batch.kept, kN, kept.mask);
    oracle::TokenStatistics stats(kN);
    double bound = 0;
    for (int64_t row = 0; row < kN; ++row) {
      const auto i = static_cast<size_t>(row);
      if (!kept.mask[i]) continue;
      stats.logp[row] = oracle::log_probabilities(logits, row, ids[i])[kept.chosen[i]];
      bound = std::max(bound, problem.log_p_bound(logits, row, ids[i], context));
    }
    const std::vector<int64_t> offsets = {0, kN};
    const oracle::LossTruth truth = oracle::policy_truth(offsets, stats, with(options, batch));
    SetOutputs out = problem.outputs();
    const PolicyResult got = problem.on_source(out, [&](const auto& outputs, const auto&... source) {
      return policy_loss(context, source..., batch, options, outputs);
    });
    for (int64_t row = 0; row < kN; ++row) {
      EXPECT_NEAR(got.per_token_logps[static_cast<size_t>(row)], stats.logp[row], bound) << row;
    }
    // Ratios are exponentials of differences of a few nats, and a sequence has all rows.
    EXPECT_NEAR(got.loss, truth.loss, 100 * bound * std::max(1.0, std::abs(truth.loss)));
    oracle::MatrixXd gamma = oracle::MatrixXd::Zero(kN, kV);
    for (int64_t row = 0; row < kN; ++row) {
      if (kept.mask[static_cast<size_t>(row)])
        gamma(row, kept.chosen[static_cast<size_t>(row)]) = truth.grads.logp[row];
    }
    // The bound of gradients is for exact upstream values: those of a float64 problem are.
    if (given.dtype == DType::kFloat64) problem.expect_gradients(logits, ids, gamma, out, context);
    SetOutputs halves = problem.outputs();
    const Forward<PolicyLoss> forward = problem.on_source(halves, [&](const auto&, const auto&... source) {
      return policy_loss.forward(context, source..., batch, options);
    });
    problem.on_source(halves, [&](const auto& outputs, const auto&... source) {
      return policy_loss.backward(context, source..., batch, options, forward, 1.0, outputs);
    });
    EXPECT_EQ(forward.result.loss, got.loss);
    EXPECT_TRUE(std::ranges::equal(halves.d_hidden.bytes(), out.d_hidden.bytes()));
    EXPECT_TRUE(std::ranges::equal(halves.d_weight.bytes(), out.d_weight.bytes()));
  }
}

TEST(PolicyKept, MatchesTheFormulas) {
  const KeptBatch kept;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (const int threads : {1, 3}) expect_matches({.dtype = dtype, .threads = threads}, kept);
  }
  expect_matches({.dtype = DType::kFloat64, .softcap = 3, .temperature = 0.7}, kept);
  expect_matches({.dtype = DType::kFloat64, .finished_logits = true, .temperature_per_token = true}, kept);
}

// What the sampler had is what the policy has: the ratio is 1, and without the sets it is below.
TEST(PolicyKept, RatiosOnPolicyAreOne) {
  const SetProblem problem({.dtype = DType::kFloat32});
  const Context context;
  KeptBatch kept;
  PolicyBatch batch = kept.batch({});
  batch.old_logps = {};
  kept.old_logps = policy_loss(context, problem.hidden(), problem.head(), batch).per_token_logps;
  batch.old_logps = KeptBatch::vector(kept.old_logps);
  const PolicyResult with = policy_loss(context, problem.hidden(), problem.head(), batch);
  EXPECT_EQ(with.metrics.mean_ratio, 1);
  batch.kept = {};
  for (int64_t row = 0; row < kN; ++row) kept.chosen[static_cast<size_t>(row)] %= kV;
  EXPECT_LT(policy_loss(context, problem.hidden(), problem.head(), batch).metrics.mean_ratio, 0.9);
}

TEST(PolicyKept, BadInputIsRefused) {
  const SetProblem problem({});
  KeptBatch kept;
  const auto refused = [&](const ContextOptions& context, const PolicyLoss& options, const PolicyBatch& batch) {
    return refusal_of([&] { policy_loss(Context(context), problem.hidden(), problem.head(), batch, options); });
  };
  const PolicyBatch good = kept.batch({});
  EXPECT_EQ(refused({}, {}, good), "");
  for (const auto& change : std::vector<std::function<void(PolicyLoss&)>>{
           [](PolicyLoss& o) { o.want_entropy = true; }, [](PolicyLoss& o) { o.entropy_bonus = 0.1; },
           [](PolicyLoss& o) { o.top_entropy_quantile = 0.5; }}) {
    PolicyLoss options;
    change(options);
    EXPECT_NE(refused({}, options, good).find("kept is given, and no entropy is known over it"), std::string::npos);
  }
  ContextOptions cut;
  cut.ranks.slices = {kV};
  EXPECT_NE(refused(cut, {}, good).find("kept cannot run: ranks.vocab"), std::string::npos);
  PolicyBatch bad = good;
  const std::vector<int64_t> short_offsets(kept.offsets.begin(), kept.offsets.end() - 1);
  bad.kept.offsets = short_offsets;
  EXPECT_NE(refused({}, {}, bad).find("kept.offsets has 23 entries but must have 24"), std::string::npos);
  bad = good;
  bad.kept = IdSets(Targets(static_cast<const int64_t*>(nullptr), kN, 3));
  EXPECT_NE(refused({}, {}, bad).find("kept.ids"), std::string::npos) << refused({}, {}, bad);
  kept.ids[0] = kV;
  EXPECT_NE(refused({}, {}, kept.batch({})).find("kept.ids of row 0, entry 0, = 157 is outside [0, 157)"),
            std::string::npos);
  kept.ids[0] = (kept.chosen[0] + 1) % kV;
  EXPECT_EQ(refused({}, {}, kept.batch({})),
            "kept of row 0 does not have chosen_ids[0] = " + std::to_string(kept.chosen[0]));
}

}  // namespace
}  // namespace logitless::testing
