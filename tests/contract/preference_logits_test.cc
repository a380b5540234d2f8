// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// preference_loss and kto_loss of finished logits against the fp64 oracle, at once and in their two halves.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/guard_pages.h"
#include "support/preference_tester.h"
#include "support/refusal.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr Form kForms[] = {Form::kFused, Form::kSplit};

// These losses are coupled by pair, by the batch, and not at all.
constexpr PreferenceLossType kRepresentatives[] = {PreferenceLossType::kSigmoid, PreferenceLossType::kAotUnpaired,
                                                   PreferenceLossType::kSft};

// Blocks of 5 rows and 16 of 41 vocabulary entries divide nothing.
PreferenceTester pairs() { return PreferenceTester().from_logits().vocab(41).tiles(5, 16).threads(2); }
KtoTester singles() { return KtoTester().from_logits().vocab(41).tiles(5, 16).threads(2); }

template <class Tester>
void matches_oracle_in_both_forms(Tester tester) {
  for (const Form form : kForms) tester.form(form).matches_oracle();
  tester.upstream().matches_oracle();
}

TEST(PreferenceFromLogits, EveryLoss) {
  for (const PreferenceLossType loss : every_preference_loss()) matches_oracle_in_both_forms(pairs().loss(loss));
}

TEST(PreferenceFromLogits, EveryOption) {
  for (const PreferenceCase& one : preference_cases()) {
    const bool relative = std::ranges::any_of(one.options.loss_type, oracle::compares_with_reference);
    PreferenceTester tester = pairs().vocab(23).options(one.name, one.options);
    tester.reference(relative ? ReferenceForm::kTokens : ReferenceForm::kNone).matches_oracle();
  }
}

TEST(KtoFromLogits, EveryOption) {
  for (const KtoCase& one : kto_cases()) {
    matches_oracle_in_both_forms(singles().vocab(23).options(one));
    matches_oracle_in_both_forms(singles().vocab(23).options(one).empty_sequences({0, 3}).shift());
  }
}

template <class Tester>
void matches_oracle_in_every_way(const Tester& base) {
  for (const DType dtype : kDTypes) {
    for (const DType out : {DType::kFloat32, dtype}) {
      if (dtype == DType::kFloat64 && out != dtype) continue;
      matches_oracle_in_both_forms(Tester(base).dtype(dtype).gradient_dtype(out).padding(3).temperature(0.8));
    }
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      matches_oracle_in_both_forms(Tester(base).dtype(dtype).temperatures().temperature_meaning(meaning).shift());
    }
  }
  for (const auto& [rows, entries] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 23}, {0, 0}, {100, 100}}) {
    matches_oracle_in_both_forms(Tester(base).tiles(rows, entries));
  }
  for (const Rows places : {Rows::kSlice, Rows::kTransposed}) {
    matches_oracle_in_both_forms(Tester(base).hidden_rows(places).strided_targets());
    matches_oracle_in_both_forms(Tester(base).d_hidden_rows(places).targets32());
  }
  matches_oracle_in_both_forms(Tester(base).gradients(false, false, false));
  for (const double ignored : {0.5, 1.0}) matches_oracle_in_both_forms(Tester(base).ignored(ignored));
  matches_oracle_in_both_forms(Tester(base).tokens(0));
  matches_oracle_in_both_forms(Tester(base).plan(PlanKind::kTwoPass));
}

TEST(PreferenceFromLogits, EveryTypeTemperatureTileAndStride) {
  for (const PreferenceLossType loss : kRepresentatives) matches_oracle_in_every_way(pairs().loss(loss));
}
TEST(KtoFromLogits, EveryTypeTemperatureTileAndStride) { matches_oracle_in_every_way(singles()); }

TEST(PreferenceFromLogits, EveryFormOfTheReference) {
  for (const ReferenceForm form :
       {ReferenceForm::kSequences, ReferenceForm::kAverages, ReferenceForm::kTokens, ReferenceForm::kModel}) {
    for (const bool temperatures : {false, true}) {
      matches_oracle_in_both_forms(
          pairs().loss(PreferenceLossType::kSigmoid).reference(form).temperatures(temperatures).empty_sequences({1}));
      matches_oracle_in_both_forms(singles().reference(form).temperatures(temperatures).shift());
    }
  }
}

TEST(PreferenceFromLogits, OnlyALossThatCouplesNoRowsRunsInOneSweep) {
  PreferenceTester tester = pairs().loss(PreferenceLossType::kSft);
  tester.plan(PlanKind::kOnePass).matches_oracle();
  expect_invalid_input({"plan = one_pass cannot run"}, [&] { tester.loss(PreferenceLossType::kSigmoid).run_once(); });
  expect_invalid_input({"plan = one_pass cannot run"}, [] { singles().plan(PlanKind::kOnePass).run_once(); });
}

TEST(PreferenceFromLogits, SameBytesForEveryNumberOfThreads) {
  const auto same = [](auto tester) {
    for (const Form form : kForms) {
      const std::vector<std::byte> bytes = tester.form(form).threads(1).run_once().bytes;
      for (const int threads : {2, 3, 7}) {
        EXPECT_TRUE(tester.threads(threads).run_once().bytes == bytes) << threads << " threads";
      }
    }
  };
  for (const PreferenceLossType loss : kRepresentatives) same(pairs().loss(loss).temperatures());
  same(singles().temperatures());
}

TEST(PreferenceFromLogits, GuardPages) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    SCOPED_TRACE(flush == Flush::kEnd ? "flush with the end" : "flush with the beginning");
    const auto memory = [flush](size_t bytes) { return guarded_memory(bytes, flush); };
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto matches = [&](auto tester) {
        tester.memory(memory).dtype(dtype).gradient_dtype(dtype).reference_dtype(dtype).temperatures();
        tester.padding(flush == Flush::kEnd ? 0 : 3);
        for (const std::string& target : simd_targets()) tester.simd_target(target).matches_oracle();
        matches_oracle_in_both_forms(tester.tiles(1, 1));
      };
      for (const PreferenceLossType loss : kRepresentatives) matches(pairs().tokens(12).batch(4).loss(loss));
      matches(singles().tokens(12).batch(4));
    }
  }
}

}  // namespace
}  // namespace logitless::testing
