// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy against sparse and dense target distributions, against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "support/calls.h"
#include "support/set_problem.h"

namespace logitless::testing {
namespace {

constexpr int64_t kN = SetProblem::kTokens, kV = SetProblem::kVocab;

// Sparse and dense targets of every kind: sums of 1, of less and more, of 0; ids twice; weights of 0.
struct Distributions {
  std::vector<int64_t> ids, offsets = {0};
  std::vector<float> weights;
  std::vector<uint8_t> mask;
  HostTensor rows;

  explicit Distributions(DType dtype) : rows(dtype == DType::kFloat64 ? dtype : DType::kFloat32, kN, kV, 5) {
    std::mt19937_64 random(41);
    std::uniform_int_distribution<int64_t> id(0, kV - 1);
    std::uniform_real_distribution<double> uniform;
    for (int64_t row = 0; row < kN; ++row) {
      mask.push_back(row % 6 != 4);
      const int64_t count = row % 5;
      const double sum = row % 3 == 0 ? 1 : row % 3 == 1 ? 0.6 : 1.7;
      for (int64_t k = 0; k < count; ++k) {
        ids.push_back(k == 2 ? ids[ids.size() - 2] : id(random));
        weights.push_back(static_cast<float>(row % 7 == 6 ? 0 : sum / static_cast<double>(count)));
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
      double all = 0;
      std::vector<double> q(kV);
      for (double& value : q) all += value = uniform(random) < 0.3 ? 0 : uniform(random);
      for (int64_t v = 0; v < kV; ++v) rows.set(row, v, row == 8 ? 0 : q[static_cast<size_t>(v)] / all * sum);
    }
  }
  SoftTargets sparse() const {
    SoftTargets out(IdSets(Targets(std::span<const int64_t>(ids)), offsets),
                    ConstVector(weights.data(), static_cast<int64_t>(weights.size())));
    out.mask = mask;
    return out;
  }
  SoftTargets dense() const {
    SoftTargets out(rows.view());
    out.mask = mask;
    return out;
  }
};

struct Ran {
  SoftCrossEntropyResult result;
  SetOutputs out;
};

Ran run(const SetProblem& problem, const Context& context, const SoftTargets& targets,
        const SoftCrossEntropy& options) {
  Ran ran;
  ran.out = problem.outputs();
  problem.on_source(ran.out, [&](const auto& outputs, const auto&... source) {
    ran.result = soft_cross_entropy(context, source..., targets, options, outputs);
    return 0;
  });
  return ran;
}

oracle::RowIds ids_of(const SoftTargets& targets) { return oracle::read_sets(targets.sets, kN, targets.mask); }

void check(const SetCase& given, const SoftTargets& targets, SoftCrossEntropy options) {
  SCOPED_TRACE(given.name() + (targets.rows.data ? " dense" : " sparse"));
  const SetProblem problem(given);
  const Context context(given.context());
  options.token = problem.token();
  const Ran ran = run(problem, context, targets, options);
  const oracle::SetLogits logits = problem.oracle_logits(options.token, false);
  const oracle::SoftTruth truth = oracle::compute_soft_cross_entropy(logits, targets, options);
  const oracle::MatrixXd q = oracle::read_soft_targets(targets, kN, kV);

  double whole = 0, scale = options.loss_scale;
  for (int64_t row = 0; row < kN; ++row) {
    const auto r = static_cast<size_t>(row);
    // A loss errs by Q times as much as its log p do, and a dense one by its sum over the vocabulary.
    const double mass = q.row(row).sum();
    const double log_p = problem.log_p_bound(logits, row, {}, context);
    const double unit = given.dtype == DType::kFloat64 ? 0x1p-50 : 0x1p-21;
    const double size = std::abs(truth.per_token_loss[r]) + mass * 20;
    const double bound = std::abs(options.loss_scale) * (mass * log_p + unit * size * std::sqrt(kV)) + 1e-14;
    EXPECT_NEAR(ran.result.per_token_loss[r], truth.per_token_loss[r], bound) << row;
    whole += bound / std::abs(options.loss_scale);
  }
  const auto count = static_cast<double>(truth.metrics.tokens);
  if (options.reduction == Reduction::kMean) scale /= options.num_items_in_batch.value_or(count);
  EXPECT_NEAR(ran.result.loss, truth.loss, std::abs(scale) * whole);
  EXPECT_EQ(ran.result.metrics.tokens, truth.metrics.tokens);
  EXPECT_NEAR(ran.result.metrics.mean_cross_entropy, truth.metrics.mean_cross_entropy, whole / count);
  if (options.subtract_entropy) {
    EXPECT_NEAR(ran.result.metrics.mean_target_entropy, truth.metrics.mean_target_entropy, 1e-6);
    EXPECT_NEAR(ran.result.metrics.mean_kl, truth.metrics.mean_kl, whole / count);
  } else {
    EXPECT_TRUE(std::isnan(ran.result.metrics.mean_kl));
  }
  problem.expect_gradients(logits, ids_of(targets), truth.gamma, ran.out, context);
}

void check_both(const SetCase& given, const SoftCrossEntropy& options = {}) {
  const Distributions targets(given.dtype);
  check(given, targets.sparse(), options);
  check(given, targets.dense(), options);
}

TEST(SoftTargets, EveryTypeAndPlanAgreesWithTheOracle) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      check_both({.dtype = dtype, .plan = plan});
      check_both({.dtype = dtype, .finished_logits = true, .plan = plan});
    }
    check_both({.dtype = dtype, .layout = HeadLayout::kHiddenVocab});
  }
}

TEST(SoftTargets, OptionsAgreeWithTheOracle) {
  for (const bool finished : {false, true}) {
    SoftCrossEntropy kl;
    kl.subtract_entropy = true;
    check_both({.finished_logits = finished}, kl);
    SoftCrossEntropy sum;
    sum.reduction = Reduction::kSum;
    sum.loss_scale = -0.25;
    check_both({.finished_logits = finished, .temperature = 0.7}, sum);
    SoftCrossEntropy none;
    none.reduction = Reduction::kNone;
    check_both({.finished_logits = finished, .temperature_per_token = true}, none);
    SoftCrossEntropy given;
    given.num_items_in_batch = 77;
    check_both({.finished_logits = finished, .temperature = 2, .meaning = TemperatureMeaning::kScaleLogp}, given);
  }
  check_both({.softcap = 5});
  check_both({.dtype = DType::kFloat64, .softcap = 5, .temperature = 0.5});
  check_both({.bias = false, .slices = {60, 0, kV - 60}});
  check_both({.dtype = DType::kBFloat16, .output = DType::kBFloat16, .mode = WriteMode::kAccumulate});
}

TEST(SoftTargets, PeakedRowsAndCommonOffsetsLoseNoDigits) {
  SoftCrossEntropy kl;
  kl.subtract_entropy = true;
  check_both({.finished_logits = true, .scale = 40, .offset = 0x1p24}, kl);
  check_both({.scale = 100}, kl);
  check_both({.dtype = DType::kFloat64, .scale = 1000}, kl);
}

TEST(SoftTargets, HalvesAndThreadsGiveTheBitsOfOneCall) {
  for (const bool finished : {false, true}) {
    const SetCase given = {.finished_logits = finished, .plan = PlanKind::kTwoPass, .threads = 1};
    const SetProblem problem(given);
    const Distributions distributions(given.dtype);
    for (const SoftTargets& targets : {distributions.sparse(), distributions.dense()}) {
      const SoftCrossEntropy options = {.token = problem.token()};
      const Ran one = run(problem, Context(given.context()), targets, options);
      for (const int threads : {1, 2, 3, 7}) {
        SetCase other = given;
        other.threads = threads;
        const Context context(other.context());
        Ran ran;
        ran.out = problem.outputs();
        problem.on_source(ran.out, [&](const auto& outputs, const auto&... source) {
          const Forward<SoftCrossEntropy> left = soft_cross_entropy.forward(context, source..., targets, options);
          ran.result = left.result;
          return soft_cross_entropy.backward(context, source..., targets, options, left, 1.0, outputs);
        });
        EXPECT_EQ(one.result.per_token_loss, ran.result.per_token_loss);
        EXPECT_EQ(one.result.loss, ran.result.loss);
        for (const auto tensor :
             {&SetOutputs::d_hidden, &SetOutputs::d_weight, &SetOutputs::d_bias, &SetOutputs::d_logits}) {
          const auto a = (one.out.*tensor).bytes(), b = (ran.out.*tensor).bytes();
          EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << threads;
        }
      }
    }
  }
}

TEST(SoftTargets, UpstreamOfEachTokenScalesItsGradients) {
  const SetCase given = {.dtype = DType::kFloat64};
  const SetProblem problem(given);
  const Context context(given.context());
  const Distributions distributions(given.dtype);
  SoftCrossEntropy options = {.token = problem.token(), .reduction = Reduction::kNone};
  std::vector<double> upstream(kN);
  for (size_t i = 0; i < upstream.size(); ++i) upstream[i] = static_cast<double>(i % 4) - 1;
  for (const SoftTargets& targets : {distributions.sparse(), distributions.dense()}) {
    SetOutputs out = problem.outputs();
    const auto left = soft_cross_entropy.forward(context, problem.hidden(), problem.head(), targets, options);
    soft_cross_entropy.backward(context, problem.hidden(), problem.head(), targets, options, left, upstream,
                                problem.gradients(out));
    const oracle::SetLogits logits = problem.oracle_logits(options.token, false);
    const oracle::SoftTruth truth = oracle::compute_soft_cross_entropy(logits, targets, options, upstream);
    problem.expect_gradients(logits, ids_of(targets), truth.gamma, out, context);
  }
}

// One-hot targets are labels: the same numbers as cross_entropy, to the bit.
TEST(SoftTargets, OneHotTargetsAreLabels) {
  const SetProblem problem({});
  const Context context(problem.given().context());
  std::vector<int64_t> labels;
  const std::vector<float> ones(kN, 1);
  HostTensor rows(DType::kFloat32, kN, kV);
  for (int64_t row = 0; row < kN; ++row) {
    labels.push_back(row * 31 % kV);
    for (int64_t v = 0; v < kV; ++v) rows.set(row, v, v == labels.back());
  }
  const CrossEntropyResult wanted =
      cross_entropy(context, problem.hidden(), problem.head(), Targets(std::span<const int64_t>(labels)));
  const SoftTargets sparse(IdSets(Targets(labels.data(), kN, 1)), ConstVector(ones.data(), kN));
  EXPECT_EQ(soft_cross_entropy(context, problem.hidden(), problem.head(), sparse).loss, wanted.loss);
  const double dense = soft_cross_entropy(context, problem.hidden(), problem.head(), SoftTargets(rows.view())).loss;
  EXPECT_NEAR(dense, wanted.loss, 1e-6 * wanted.loss);
}

// KL of a distribution with itself: 0 to rounding, never below, and no gradient.
TEST(SoftTargets, KlWithItselfIsNotBelowZero) {
  const SetProblem problem({.finished_logits = true});
  const Context context(problem.given().context());
  const TokenOptions token = problem.token();
  const oracle::SetLogits logits = problem.oracle_logits(token, false);
  HostTensor rows(DType::kFloat32, kN, kV);
  for (int64_t row = 0; row < kN; ++row) {
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, {});
    for (int64_t v = 0; v < kV; ++v) rows.set(row, v, std::exp(log_p[v]));
  }
  const SoftCrossEntropy options = {.token = token, .reduction = Reduction::kNone, .subtract_entropy = true};
  const Ran ran = run(problem, context, SoftTargets(rows.view()), options);
  for (int64_t row = 0; row < kN; ++row) {
    double sum = 0;
    for (int64_t v = 0; v < kV; ++v) sum += rows.get(row, v);
    EXPECT_GE(ran.result.per_token_loss[static_cast<size_t>(row)], std::min(0.0, sum * std::log(sum)));
    EXPECT_NEAR(ran.result.per_token_loss[static_cast<size_t>(row)], 0, 2e-6);
    for (int64_t v = 0; v < kV; ++v) EXPECT_NEAR(ran.out.d_logits.get(row, v), 0, 1e-6);
  }
}

TEST(SoftTargets, NothingTakesPartWithoutTargets) {
  const SetProblem problem({});
  const Context context(problem.given().context());
  Distributions distributions(DType::kFloat32);
  std::fill(distributions.mask.begin(), distributions.mask.end(), uint8_t{0});
  for (const SoftTargets& targets : {distributions.sparse(), distributions.dense()}) {
    const Ran ran = run(problem, context, targets, {});
    EXPECT_EQ(ran.result.loss, 0);
    EXPECT_EQ(ran.result.metrics.tokens, 0);
    EXPECT_EQ(ran.out.d_weight.get(1, 1), 0);
  }
}

}  // namespace
}  // namespace logitless::testing
