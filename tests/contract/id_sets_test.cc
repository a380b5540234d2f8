// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Log-probabilities at sets of token ids and their gradients, against the oracle: over the vocabulary and
// over the set, from every source, plan and type.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "support/calls.h"
#include "support/set_problem.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr int64_t kN = SetProblem::kTokens, kV = SetProblem::kVocab, kH = SetProblem::kHidden;

// Sets of every kind: none, one id, the same id over and over, all of the vocabulary; in no order.
struct Sets {
  std::vector<int64_t> ids, offsets = {0};
  std::vector<int32_t> padded;
  std::vector<int64_t> counts;
  static constexpr int64_t kMost = 6;

  Sets() {
    std::mt19937_64 random(31);
    std::uniform_int_distribution<int64_t> draw(0, kV - 1);
    for (int64_t row = 0; row < kN; ++row) {
      int64_t count = row % 7;
      if (row == 9) count = 40;
      for (int64_t k = 0; k < count; ++k) ids.push_back(row % 5 == 3 ? 17 : draw(random));
      if (count > 2) ids.back() = ids[ids.size() - 3];
      if (row == 10) {
        for (int64_t v = kV; v-- > 0;) ids.push_back(v);
      }
      offsets.push_back(static_cast<int64_t>(ids.size()));
      counts.push_back(row % (kMost + 1));
      // What stands behind a row's count is not read.
      for (int64_t k = 0; k < kMost; ++k) padded.push_back(k < counts.back() ? static_cast<int32_t>(draw(random)) : -1);
    }
  }
  IdSets csr() const { return {Targets(std::span<const int64_t>(ids)), offsets}; }
  IdSets rectangle() const { return IdSets::padded(Targets(padded.data(), kN, kMost), counts); }
};

std::vector<double> upstream_of(const IdSets& sets) {
  std::vector<double> out(static_cast<size_t>(sets.entries()));
  std::mt19937_64 random(32);
  std::normal_distribution<double> draw;
  for (double& value : out) value = draw(random);
  return out;
}

oracle::MatrixXd gamma_of(const oracle::RowIds& ids, const IdSets& sets, const std::vector<double>& upstream) {
  oracle::MatrixXd gamma = oracle::MatrixXd::Zero(kN, kV);
  for (int64_t row = 0; row < kN; ++row) {
    int64_t entry = oracle::first_entry(sets, kN, row);
    for (const int64_t id : ids[static_cast<size_t>(row)]) gamma(row, id) += upstream[static_cast<size_t>(entry++)];
  }
  return gamma;
}

struct Ran {
  Forward<IdLogps> forward;
  SetOutputs out;
};

Ran run(const SetProblem& problem, const Context& context, const IdSets& sets, const IdLogps& options,
        const std::vector<double>& upstream) {
  Ran ran;
  ran.out = problem.outputs();
  problem.on_source(ran.out, [&](const auto& outputs, const auto&... source) {
    ran.forward = id_logps.forward(context, source..., sets, options);
    EXPECT_EQ(id_logps.plan(context, source..., sets, options).kind, ran.forward.result.plan.kind);
    return id_logps.backward(context, source..., sets, options, ran.forward, upstream, outputs);
  });
  return ran;
}

void check(const SetCase& given, NormaliseOver over, const IdSets& sets) {
  SCOPED_TRACE(given.name() + " over " + name_of(over));
  const SetProblem problem(given);
  const Context context(given.context());
  const IdLogps options = {.normalise_over = over, .token = problem.token()};
  const std::vector<double> upstream = upstream_of(sets);
  const Ran ran = run(problem, context, sets, options, upstream);

  const oracle::SetLogits logits = problem.oracle_logits(options.token, over == NormaliseOver::kSet);
  const oracle::RowIds ids = oracle::read_sets(sets, kN);
  ASSERT_EQ(static_cast<int64_t>(ran.forward.result.logps.size()), sets.entries());
  std::vector<bool> filled(ran.forward.result.logps.size(), false);
  for (int64_t row = 0; row < kN; ++row) {
    const std::vector<int64_t>& of_row = ids[static_cast<size_t>(row)];
    if (of_row.empty()) continue;
    const oracle::VectorXd log_p = oracle::log_probabilities(logits, row, of_row);
    const double bound = problem.log_p_bound(logits, row, of_row, context);
    auto entry = static_cast<size_t>(oracle::first_entry(sets, kN, row));
    for (const int64_t id : of_row) {
      EXPECT_NEAR(ran.forward.result.logps[entry], log_p[id], bound) << "row " << row << " id " << id;
      EXPECT_LE(ran.forward.result.logps[entry], 0);
      filled[entry++] = true;
    }
  }
  for (size_t e = 0; e < filled.size(); ++e) {
    if (filled[e]) continue;
    EXPECT_EQ(ran.forward.result.logps[e], 0) << "an entry behind a row's count";
  }
  problem.expect_gradients(logits, ids, gamma_of(ids, sets, upstream), ran.out, context);
}

void check_both(const SetCase& given) {
  const Sets sets;
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    check(given, over, sets.csr());
    check(given, over, sets.rectangle());
  }
}

TEST(IdSets, EveryTypeAndLayoutAgreesWithTheOracle) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (const HeadLayout layout : {HeadLayout::kVocabHidden, HeadLayout::kHiddenVocab}) {
      check_both({.dtype = dtype, .layout = layout});
    }
    check_both({.dtype = dtype, .finished_logits = true});
  }
}

TEST(IdSets, SoftcapsTemperaturesAndRoundingAgreeWithTheOracle) {
  for (const bool finished : {false, true}) {
    const double softcap = finished ? 0 : 5;
    for (const TemperatureMeaning meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      check_both({.finished_logits = finished, .softcap = softcap, .temperature = 0.7, .meaning = meaning});
      check_both({.finished_logits = finished, .softcap = softcap, .temperature_per_token = true, .meaning = meaning});
    }
    check_both({.finished_logits = finished, .bias = false});
  }
  check_both({.dtype = DType::kFloat64, .softcap = 3, .temperature = 2});
  check_both({.dtype = DType::kFloat64, .round_logits_to = DType::kBFloat16});
  check_both({.finished_logits = true, .round_logits_to = DType::kBFloat16});
}

TEST(IdSets, EveryPlanAgreesWithTheOracle) {
  const Sets sets;
  for (const bool finished : {false, true}) {
    check({.finished_logits = finished, .plan = PlanKind::kTwoPass}, NormaliseOver::kVocabulary, sets.csr());
  }
  check({.plan = PlanKind::kTwoPass}, NormaliseOver::kSet, sets.csr());
  check({.slices = {60, 0, kV - 60}}, NormaliseOver::kVocabulary, sets.csr());
  check({.softcap = 4, .slices = {1, kV - 1}}, NormaliseOver::kVocabulary, sets.rectangle());
}

TEST(IdSets, SumsAreRoundedOnceAndAddedTo) {
  for (const WriteMode mode : {WriteMode::kOverwrite, WriteMode::kAccumulate}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      check_both({.dtype = dtype, .output = dtype, .mode = mode});
      check_both({.dtype = dtype, .layout = HeadLayout::kHiddenVocab, .output = dtype, .mode = mode});
    }
    check_both({.mode = mode});
    check_both({.dtype = DType::kFloat64, .layout = HeadLayout::kHiddenVocab, .mode = mode});
  }
}

TEST(IdSets, PeakedRowsAndCommonOffsetsLoseNoDigits) {
  // Finished logits are exact: with an offset of 2^24 those of float32 are even integers.
  check_both({.finished_logits = true, .scale = 40, .offset = 0x1p24});
  check_both({.dtype = DType::kFloat64, .scale = 500});
  check_both({.scale = 100});
  check_both({.finished_logits = true, .scale = 1000});
}

TEST(IdSets, NoNumberOfThreadsChangesABit) {
  const Sets sets;
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    for (const bool finished : {false, true}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        const auto run_with = [&](int threads) {
          const SetCase given = {
              .dtype = dtype, .finished_logits = finished, .softcap = finished ? 0.0 : 4.0, .threads = threads};
          const SetProblem problem(given);
          return run(problem, Context(given.context()), sets.csr(), {.normalise_over = over, .token = problem.token()},
                     upstream_of(sets.csr()));
        };
        const Ran one = run_with(1);
        for (const int threads : {2, 3, 7}) {
          const Ran other = run_with(threads);
          EXPECT_EQ(one.forward.result.logps, other.forward.result.logps);
          for (const auto tensor :
               {&SetOutputs::d_hidden, &SetOutputs::d_weight, &SetOutputs::d_bias, &SetOutputs::d_logits}) {
            const auto a = (one.out.*tensor).bytes(), b = (other.out.*tensor).bytes();
            EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << threads;
          }
        }
      }
    }
  }
}

TEST(IdSets, ASetOfOneIdIsCertain) {
  const SetProblem problem({.scale = 50});
  const Context context(problem.given().context());
  const std::vector<int64_t> ids(kN, 5);
  const IdSets sets(Targets(ids.data(), kN, 1));
  const IdLogps options = {.normalise_over = NormaliseOver::kSet, .token = problem.token()};
  const Ran ran = run(problem, context, sets, options, std::vector<double>(kN, 1));
  EXPECT_EQ(ran.forward.result.logps, std::vector<double>(kN, 0));
  for (int64_t row = 0; row < kN; ++row) {
    for (int64_t h = 0; h < kH; ++h) EXPECT_EQ(ran.out.d_hidden.get(row, h), 0);
  }
}

TEST(IdSets, ADuplicateCountsOnceInTheSet) {
  const SetProblem problem({});
  const Context context(problem.given().context());
  const IdLogps options = {.normalise_over = NormaliseOver::kSet, .token = problem.token()};
  std::vector<int64_t> twice, once;
  for (int64_t row = 0; row < kN; ++row) {
    once.insert(once.end(), {9, 4});
    twice.insert(twice.end(), {9, 4, 9});
  }
  const auto a = id_logps(context, problem.hidden(), problem.head(), IdSets(Targets(once.data(), kN, 2)), options);
  const auto b = id_logps(context, problem.hidden(), problem.head(), IdSets(Targets(twice.data(), kN, 3)), options);
  for (size_t row = 0; row < kN; ++row) {
    EXPECT_EQ(a.logps[2 * row], b.logps[3 * row]);
    EXPECT_EQ(a.logps[2 * row + 1], b.logps[3 * row + 1]);
    EXPECT_EQ(b.logps[3 * row], b.logps[3 * row + 2]);
    EXPECT_NEAR(std::exp(a.logps[2 * row]) + std::exp(a.logps[2 * row + 1]), 1, 1e-6);
  }
}

TEST(IdSets, RowsWithoutIdsTakeNoPart) {
  const SetProblem problem({});
  const Context context(problem.given().context());
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    const IdLogps options = {.normalise_over = over, .token = problem.token()};
    const std::vector<int64_t> offsets(kN + 1, 0);
    for (const IdSets& sets : {IdSets(Targets(), offsets), IdSets()}) {
      const Ran ran = run(problem, context, sets, options, std::vector<double>());
      EXPECT_TRUE(ran.forward.result.logps.empty());
      EXPECT_EQ(ran.forward.result.plan.active_rows, 0);
      EXPECT_EQ(ran.out.d_hidden.get(3, 3), 0);
      EXPECT_EQ(ran.out.d_weight.get(3, 3), 0);
      EXPECT_EQ(ran.out.d_bias.get(0, 3), 0);
    }
  }
}

TEST(IdSets, ACallbackGetsDWeightInTheOrderOfTheVocabulary) {
  const Sets sets;
  for (const NormaliseOver over : {NormaliseOver::kVocabulary, NormaliseOver::kSet}) {
    for (const HeadLayout layout : {HeadLayout::kVocabHidden, HeadLayout::kHiddenVocab}) {
      const SetCase given = {.layout = layout, .threads = 3};
      const SetProblem problem(given);
      const Context context(given.context());
      const IdLogps options = {.normalise_over = over, .token = problem.token()};
      const std::vector<double> upstream = upstream_of(sets.csr());
      const Ran ran = run(problem, context, sets.csr(), options, upstream);
      int64_t next = 0;
      Gradients gradients;
      gradients.weight_sink = [&](int64_t first, int64_t count, ConstMatrix tile) {
        EXPECT_EQ(first, next);
        next = first + count;
        const bool tall = layout == HeadLayout::kVocabHidden;
        for (int64_t v = 0; v < count; ++v) {
          for (int64_t h = 0; h < kH; ++h) {
            const float got = static_cast<const float*>(tile.data)[tall ? v * tile.stride + h : h * tile.stride + v];
            EXPECT_NEAR(got, tall ? ran.out.d_weight.get(first + v, h) : ran.out.d_weight.get(h, first + v), 1e-4);
          }
        }
      };
      id_logps.backward(context, problem.hidden(), problem.head(), sets.csr(), options, ran.forward, upstream,
                        gradients);
      EXPECT_EQ(next, kV);
    }
  }
}

TEST(IdSets, ABudgetIsKept) {
  const Sets sets;
  SetCase given = {.threads = 3};
  const SetProblem problem(given);
  const IdLogps options = {.normalise_over = NormaliseOver::kSet, .token = problem.token()};
  const auto plan_with = [&](size_t bytes) {
    given.workspace_bytes = bytes;
    return id_logps.plan(Context(given.context()), problem.hidden(), problem.head(), sets.csr(), options);
  };
  const Plan roomy = plan_with(size_t{1} << 20);
  EXPECT_EQ(roomy.threads, 3);
  const Plan least = plan_with(roomy.least_workspace_bytes);
  EXPECT_EQ(least.threads, 1);
  EXPECT_EQ(least.workspace_bytes, roomy.least_workspace_bytes);
  EXPECT_THROW(plan_with(roomy.least_workspace_bytes - 1), InvalidInput);
}

}  // namespace
}  // namespace logitless::testing
