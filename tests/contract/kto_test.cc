// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// kto_loss through the engine against the fp64 oracle.
#include <gtest/gtest.h>

#include <vector>

#include "support/preference_tester.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass};

KtoTester small() { return KtoTester().tiles(16, 64).threads(2); }

void matches_oracle_in_every_plan(KtoTester tester) {
  for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
}

TEST(Kto, EveryTypeLayoutPlanAndThreads) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int threads : {1, 3}) {
        matches_oracle_in_every_plan(small().dtype(dtype).layout(layout).threads(threads));
      }
    }
  }
}

TEST(Kto, EveryOption) {
  for (const KtoCase& one : kto_cases()) {
    matches_oracle_in_every_plan(small().vocab(50).hidden(9).options(one));
    matches_oracle_in_every_plan(small().vocab(50).hidden(9).options(one).empty_sequences({0, 3}).shift());
  }
}

TEST(Kto, EveryFormOfTheReference) {
  for (const ReferenceForm form :
       {ReferenceForm::kSequences, ReferenceForm::kAverages, ReferenceForm::kTokens, ReferenceForm::kModel}) {
    matches_oracle_in_every_plan(small().reference(form));
    for (const DType dtype : kDTypes) small().reference(form).reference_dtype(dtype).shift().matches_oracle();
  }
}

TEST(Kto, TokenOptionsAndPackedSequences) {
  matches_oracle_in_every_plan(small().temperature(0.6).softcap(9));
  matches_oracle_in_every_plan(small().temperature(2.5).temperature_meaning(TemperatureMeaning::kScaleLogp));
  matches_oracle_in_every_plan(small().packed({0, 11, 11, 20, 33, 34, 43}).shift());
  matches_oracle_in_every_plan(small().packed({0, 43}).accumulate());
  matches_oracle_in_every_plan(small().sink().padding(3));
}

// A reference model takes its log-probabilities at the same temperatures.
TEST(Kto, TemperatureOfEachToken) {
  for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
    for (const ReferenceForm form : {ReferenceForm::kTokens, ReferenceForm::kModel}) {
      KtoTester tester = small().temperatures().temperature_meaning(meaning).reference(form);
      matches_oracle_in_every_plan(tester);
      for (const DType dtype : kDTypes) tester.dtype(dtype).softcap(9).shift().matches_oracle();
      tester.form(Form::kSplit).matches_oracle();
    }
  }
}

TEST(Kto, TheTwoHalves) {
  for (const KtoCase& one : kto_cases()) {
    KtoTester tester = small().vocab(50).hidden(9).options(one).form(Form::kSplit);
    for (const DType dtype : kDTypes) tester.dtype(dtype).matches_oracle();
    tester.upstream().accumulate().empty_sequences({0, 3}).reference(ReferenceForm::kModel).matches_oracle();
  }
}

TEST(Kto, NothingTakesPart) {
  matches_oracle_in_every_plan(small().ignored(1));
  matches_oracle_in_every_plan(small().ignored(1).accumulate());
  matches_oracle_in_every_plan(small().tokens(0));
}

TEST(Kto, OnePassInChunksOfWholeSequences) {
  KtoTester tester = small().tokens(12 * 14).batch(12).plan(PlanKind::kOnePass).workspace(size_t{100} << 10);
  tester.matches_oracle();
  const Plan plan = tester.run_once().result.plan;
  EXPECT_LT(plan.chunk_rows, plan.active_rows) << plan.describe();
}

TEST(Kto, SameBytesForEveryNumberOfThreads) {
  for (const PlanKind plan : kPlans) {
    KtoTester tester = small().tokens(12 * 14).batch(12).plan(plan).reference(ReferenceForm::kModel);
    const std::vector<std::byte> bytes = tester.threads(1).run_once().bytes;
    for (const int threads : {2, 3, 7}) {
      EXPECT_TRUE(tester.threads(threads).run_once().bytes == bytes) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace logitless::testing
