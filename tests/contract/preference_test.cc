// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// preference_loss through the engine against the fp64 oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/preference_tester.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass};

// These losses are coupled by pair, by the batch, and not at all.
constexpr PreferenceLossType kRepresentatives[] = {PreferenceLossType::kSigmoid, PreferenceLossType::kAotUnpaired,
                                                   PreferenceLossType::kSft};

PreferenceTester small() { return PreferenceTester().tiles(16, 64).threads(2); }

void matches_oracle_in_every_plan(PreferenceTester tester) {
  for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
}

TEST(Preference, NamesAreThoseOfTheDocumentation) {
  const std::vector<std::string> names = {"sigmoid",  "hinge",     "ipo",      "exo_pair", "nca_pair", "robust",
                                          "bco_pair", "sppo_hard", "apo_zero", "apo_down", "aot",      "aot_unpaired",
                                          "discopop", "sft",       "orpo",     "simpo",    "cpo",      "sigmoid_norm"};
  ASSERT_EQ(all_of<PreferenceLossType>().size(), names.size());
  for (size_t k = 0; k < names.size(); ++k) {
    EXPECT_EQ(all_of<PreferenceLossType>()[k], every_preference_loss()[k]);
    EXPECT_EQ(name_of(all_of<PreferenceLossType>()[k]), names[k]);
    EXPECT_EQ(needs_reference(all_of<PreferenceLossType>()[k]),
              oracle::compares_with_reference(all_of<PreferenceLossType>()[k]));
  }
}

TEST(Preference, EveryTypeLayoutPlanAndThreads) {
  for (const PreferenceLossType loss : kRepresentatives) {
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) {
        PreferenceTester tester = small().loss(loss).dtype(dtype).layout(layout);
        for (const int threads : {1, 3}) matches_oracle_in_every_plan(tester.threads(threads));
      }
    }
  }
}

TEST(Preference, EveryLoss) {
  for (const PreferenceLossType loss : every_preference_loss()) matches_oracle_in_every_plan(small().loss(loss));
}

TEST(Preference, EveryOption) {
  for (const PreferenceCase& one : preference_cases()) {
    const bool relative = std::ranges::any_of(one.options.loss_type, oracle::compares_with_reference);
    PreferenceTester tester = small().vocab(50).hidden(9).options(one.name, one.options);
    tester.reference(relative ? ReferenceForm::kTokens : ReferenceForm::kNone).matches_oracle();
  }
}

TEST(Preference, EveryFormOfTheReference) {
  for (const PreferenceLossType loss :
       {PreferenceLossType::kSigmoid, PreferenceLossType::kIpo, PreferenceLossType::kAot}) {
    for (const ReferenceForm form :
         {ReferenceForm::kSequences, ReferenceForm::kAverages, ReferenceForm::kTokens, ReferenceForm::kModel}) {
      PreferenceTester tester = small().loss(loss).reference(form);
      matches_oracle_in_every_plan(tester);
      matches_oracle_in_every_plan(tester.dtype(DType::kFloat64));
      tester.dtype(DType::kBFloat16).shift().temperature(1.7).matches_oracle();
      for (const DType dtype : kDTypes) tester.reference_dtype(dtype).matches_oracle();
    }
  }
}

TEST(Preference, TokenOptions) {
  for (const PreferenceLossType loss : {PreferenceLossType::kRobust, PreferenceLossType::kOrpo}) {
    matches_oracle_in_every_plan(small().loss(loss).shift());
    matches_oracle_in_every_plan(small().loss(loss).temperature(0.6));
    matches_oracle_in_every_plan(
        small().loss(loss).temperature(2.5).temperature_meaning(TemperatureMeaning::kScaleLogp).shift());
    matches_oracle_in_every_plan(small().loss(loss).softcap(8).targets32().padding(3));
    matches_oracle_in_every_plan(small().loss(loss).ignore_index(3).ignored(0.4).bias(false));
  }
}

// A reference model takes its log-probabilities at the same temperatures.
TEST(Preference, TemperatureOfEachToken) {
  for (const PreferenceLossType loss :
       {PreferenceLossType::kRobust, PreferenceLossType::kOrpo, PreferenceLossType::kSft}) {
    for (const auto meaning : {TemperatureMeaning::kScaleLogits, TemperatureMeaning::kScaleLogp}) {
      PreferenceTester tester = small().loss(loss).temperatures().temperature_meaning(meaning);
      matches_oracle_in_every_plan(tester);
      for (const DType dtype : kDTypes) tester.dtype(dtype).softcap(9).shift().matches_oracle();
      tester.form(Form::kSplit).matches_oracle();
      if (needs_reference(loss))
        matches_oracle_in_every_plan(tester.form(Form::kFused).reference(ReferenceForm::kModel));
    }
  }
}

TEST(Preference, TheTwoHalves) {
  for (const PreferenceLossType loss : every_preference_loss()) {
    PreferenceTester tester = small().vocab(50).hidden(9).loss(loss).form(Form::kSplit);
    for (const DType dtype : kDTypes) tester.dtype(dtype).upstream().matches_oracle();
    tester.accumulate().shift().empty_sequences({1}).matches_oracle();
    PreferenceTester(tester).gradients(false, false, false).matches_oracle();
    if (needs_reference(loss)) tester.reference(ReferenceForm::kModel).matches_oracle();
  }
}

TEST(Preference, PackedSequences) {
  for (const PreferenceLossType loss : kRepresentatives) {
    for (const bool shift : {false, true}) {
      PreferenceTester tester = small().loss(loss).packed({0, 11, 15, 20, 33, 36, 43}).shift(shift);
      matches_oracle_in_every_plan(tester);
      // There is an empty one in the middle, and there are sequences that shifting leaves nothing of.
      matches_oracle_in_every_plan(tester.packed({0, 11, 11, 20, 33, 34, 43}));
      matches_oracle_in_every_plan(tester.packed({0, 1, 2, 3, 4}).ignored(0));
    }
  }
}

TEST(Preference, PairsWithAnEmptySide) {
  for (const PreferenceLossType loss : kRepresentatives) {
    matches_oracle_in_every_plan(small().loss(loss).empty_sequences({1}));
    matches_oracle_in_every_plan(small().loss(loss).empty_sequences({3, 2}));
    matches_oracle_in_every_plan(small().loss(loss).empty_sequences({0, 3}).reference_dtype(DType::kFloat32));
  }
}

TEST(Preference, NoPairTakesPart) {
  for (const PreferenceLossType loss : kRepresentatives) {
    for (const bool accumulate : {false, true}) {
      matches_oracle_in_every_plan(small().loss(loss).empty_sequences({0, 4, 2}).accumulate(accumulate));
      matches_oracle_in_every_plan(small().loss(loss).ignored(1).accumulate(accumulate));
      matches_oracle_in_every_plan(small().loss(loss).tokens(0).accumulate(accumulate));
    }
    const PreferenceResult result = small().loss(loss).ignored(1).run_once().result;
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.metrics.pairs, 0);
    EXPECT_TRUE(std::isnan(result.metrics.margin));
  }
}

TEST(Preference, OnePair) {
  for (const PreferenceLossType loss : every_preference_loss()) small().loss(loss).tokens(14).batch(2).matches_oracle();
}

TEST(Preference, GradientsOneByOneAddedAndThroughASink) {
  for (const PreferenceLossType loss : kRepresentatives) {
    for (int asked = 0; asked < 8; ++asked) {
      small().loss(loss).vocab(70).gradients(asked & 1, asked & 2, asked & 4).matches_oracle();
    }
    matches_oracle_in_every_plan(small().loss(loss).accumulate());
    matches_oracle_in_every_plan(small().loss(loss).accumulate().dtype(DType::kBFloat16));
    matches_oracle_in_every_plan(small().loss(loss).sink());
    small().loss(loss).dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).matches_oracle();
  }
}

TEST(Preference, OnePassInChunksOfWholePairs) {
  const auto runs_in_chunks = [](PreferenceLossType loss, DType dtype) {
    PreferenceTester tester = small().loss(loss).tokens(8 * 18).batch(8).dtype(dtype).plan(PlanKind::kOnePass);
    tester.tightest_workspace().matches_oracle();
    const Plan plan = tester.run_once().result.plan;
    EXPECT_LT(plan.chunk_rows, plan.active_rows) << plan.describe();
  };
  for (const DType dtype : kDTypes) runs_in_chunks(PreferenceLossType::kSigmoid, dtype);
  for (const PreferenceLossType loss : {PreferenceLossType::kSft, PreferenceLossType::kOrpo}) {
    runs_in_chunks(loss, DType::kFloat32);
  }
}

// A loss that is coupled by the batch has one chunk or two passes.
TEST(Preference, AotRunsOnePassWhereTheBatchFits) {
  for (const PreferenceLossType loss : {PreferenceLossType::kAot, PreferenceLossType::kAotUnpaired}) {
    PreferenceTester tester = small().loss(loss).tokens(8 * 18).batch(8);
    const Plan roomy = tester.run_once().result.plan;
    EXPECT_EQ(roomy.kind, PlanKind::kOnePass);
    EXPECT_EQ(roomy.chunk_rows, roomy.active_rows);
    tester.tightest_workspace().matches_oracle();
    EXPECT_EQ(tester.run_once().result.plan.kind, PlanKind::kTwoPass);
    tester.plan(PlanKind::kOnePass);
    EXPECT_THROW(tester.run_once(), InvalidInput);
    const Plan tight = tester.tightest_workspace().run_once().result.plan;
    EXPECT_EQ(tight.chunk_rows, tight.active_rows);
    tester.matches_oracle();
  }
}

// The reference's model runs in the same budget, and may need more of it than the model that is trained.
TEST(Preference, ReferenceInATightWorkspace) {
  const auto fits_exactly = [](auto tester) {
    for (const PlanKind plan : kPlans) {
      tester.plan(plan).tightest_workspace().matches_oracle();
      const Plan least = tester.planned();
      EXPECT_EQ(tester.run_once().result.plan.workspace_bytes, least.workspace_bytes);
      tester.workspace(least.least_workspace_bytes - 1);
      EXPECT_THROW(tester.planned(), InvalidInput);
      EXPECT_THROW(tester.run_once(), InvalidInput);
    }
  };
  fits_exactly(small().loss(PreferenceLossType::kSigmoid).reference(ReferenceForm::kModel));
  fits_exactly(KtoTester().hidden(7).vocab(23).tiles(4, 9).reference(ReferenceForm::kModel));
  // A reference leaves no expected rows: its log-probabilities are all that is wanted.
  auto tester = small().loss(PreferenceLossType::kSigmoid).reference(ReferenceForm::kModel);
  tester.gradients(false, false, false).plan(PlanKind::kExpectedRow);
  EXPECT_EQ(tester.run_once().result.plan.workspace_bytes, tester.planned().workspace_bytes);
  // Without gradients both run forward, and logits of a reference in float64 are the larger ones.
  fits_exactly(
      KtoTester().hidden(33).vocab(317).tiles(16, 96).gradients(false, false, false).reference(ReferenceForm::kModel));
}

TEST(Preference, SameBytesForEveryNumberOfThreads) {
  for (const PreferenceLossType loss : kRepresentatives) {
    for (const PlanKind plan : kPlans) {
      for (const size_t workspace : {size_t{256} << 20, size_t{200} << 10}) {
        PreferenceTester tester = small().loss(loss).tokens(8 * 18).batch(8).hidden(33).vocab(317).plan(plan);
        if (loss != PreferenceLossType::kSft) tester.reference(ReferenceForm::kModel);
        tester.workspace(plan == PlanKind::kOnePass && loss == PreferenceLossType::kAotUnpaired ? size_t{256} << 20
                                                                                                : workspace);
        const std::vector<std::byte> bytes = tester.threads(1).run_once().bytes;
        for (const int threads : {1, 2, 3, 7}) {
          EXPECT_TRUE(tester.threads(threads).run_once().bytes == bytes) << name_of(loss) << ", " << threads;
        }
      }
    }
  }
}

TEST(Preference, ChosenAndRejectedAnswersOfTwoLengths) {
  for (const PreferenceLossType loss : kRepresentatives) {
    PreferenceTester tester = small().loss(loss).packed({0, 7, 14, 21, 26, 31, 36});
    for (const DType dtype : kDTypes) matches_oracle_in_every_plan(tester.dtype(dtype).padding(2));
    matches_oracle_in_every_plan(tester.dtype(DType::kFloat32).shift().accumulate());
    matches_oracle_in_every_plan(tester.packed({0, 9, 9, 21, 30, 34, 37}).sink());
    if (loss == PreferenceLossType::kSft) continue;
    for (const ReferenceForm form : {ReferenceForm::kSequences, ReferenceForm::kModel}) {
      matches_oracle_in_every_plan(small().loss(loss).packed({0, 7, 14, 21, 26, 31, 36}).reference(form));
    }
  }
}

// A NaN in one row reaches its pair and the loss, no other pair.
TEST(Preference, NaNInOneRow) {
  for (const PreferenceLossType loss : every_preference_loss()) {
    InputSpec spec;
    spec.tokens = 42;
    spec.sequences = 6;
    Inputs inputs(spec);
    inputs.set_hidden(10, 3, std::numeric_limits<double>::quiet_NaN());  // the second pair's chosen answer
    const std::vector<double> sums(6, -40.0);
    Reference reference;
    if (needs_reference(loss)) reference.logps = ConstVector(sums.data(), 6);
    for (const PlanKind plan : kPlans) {
      RunSpec run;
      run.context.plan = plan;
      GradientOutputs outputs(inputs, run);
      const PreferenceResult result =
          preference_loss(Context(run.context), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(),
                          reference, options_of(loss), outputs.gradients());
      EXPECT_TRUE(std::isnan(result.loss)) << name_of(loss);
      EXPECT_TRUE(std::isnan(outputs.d_hidden().get(10, 0))) << name_of(loss);
      if (loss == PreferenceLossType::kAot || loss == PreferenceLossType::kAotUnpaired) continue;
      for (int64_t i = 0; i < 42; ++i) {
        if (i / 7 % 3 == 1) continue;
        EXPECT_TRUE(std::isfinite(outputs.d_hidden().get(i, 0))) << name_of(loss) << ", row " << i;
        EXPECT_TRUE(std::isfinite(result.per_token_logps[i])) << name_of(loss) << ", row " << i;
      }
    }
  }
}

// The answers of packed inputs, padded to these lengths: [2B, T] when they are equal, else packed.
Inputs padded_inputs(const Inputs& packed, int64_t chosen_length, int64_t rejected_length) {
  const std::vector<int64_t>& offsets = packed.spec.offsets;
  const auto pairs = static_cast<int64_t>(offsets.size() - 1) / 2;
  InputSpec spec = packed.spec;
  spec.offsets.clear();
  spec.ignored = 0;
  spec.tokens = pairs * (chosen_length + rejected_length);
  spec.sequences = 2 * pairs;
  if (chosen_length != rejected_length) {
    spec.sequences = 1;
    spec.offsets = {0};
    for (int64_t s = 0; s < 2 * pairs; ++s) {
      spec.offsets.push_back(spec.offsets.back() + (s < pairs ? chosen_length : rejected_length));
    }
  }
  std::vector<int64_t> source;  // the packed row of each row, or -1
  for (int64_t s = 0; s < 2 * pairs; ++s) {
    for (int64_t t = 0; t < (s < pairs ? chosen_length : rejected_length); ++t) {
      source.push_back(offsets[s] + t < offsets[s + 1] ? offsets[s] + t : -1);
    }
  }
  for (const int64_t row : source) spec.targets.push_back(row < 0 ? spec.ignore_index : packed.targets_view()[row]);
  Inputs padded(spec);  // the same head: it comes first from the seed
  for (int64_t i = 0; i < spec.tokens; ++i) {
    if (source[i] < 0) continue;
    for (int64_t h = 0; h < spec.hidden; ++h) padded.set_hidden(i, h, packed.hidden.get(source[i], h));
  }
  return padded;
}

// A trainer may give [2B, T] with padding, the same answers packed, or padded to one length for the chosen
// answers and another for the rejected ones.
TEST(Preference, PaddedPackedAndParted) {
  InputSpec spec;
  spec.offsets = {0, 9, 12, 20, 25, 31, 37};
  spec.tokens = 37;
  spec.ignored = 0.2;
  const Inputs packed(spec), padded = padded_inputs(packed, 9, 9), parted = padded_inputs(packed, 9, 6);
  const std::vector<double> sums = {-30, -20, -40, -25, -35, -30};
  for (const PreferenceLossType loss : every_preference_loss()) {
    Reference reference;
    if (needs_reference(loss)) reference.logps = ConstVector(sums.data(), 6);
    const auto run = [&](const Inputs& inputs, HostTensor& d_weight) {
      Gradients gradients;
      gradients.d_weight = d_weight.output();
      return preference_loss(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), reference,
                             options_of(loss), gradients);
    };
    HostTensor packed_gradient(DType::kFloat32, spec.hidden, spec.vocab);
    const PreferenceResult want = run(packed, packed_gradient);
    for (const Inputs* inputs : {&padded, &parted}) {
      HostTensor gradient(DType::kFloat32, spec.hidden, spec.vocab);
      const PreferenceResult got = run(*inputs, gradient);
      // The rows that take part are the same rows in the same order.
      EXPECT_EQ(got.sequence_logps, want.sequence_logps) << name_of(loss);
      EXPECT_EQ(got.loss, want.loss) << name_of(loss);
      EXPECT_EQ(got.metrics.margin, want.metrics.margin) << name_of(loss);
      EXPECT_TRUE(std::equal(gradient.bytes().begin(), gradient.bytes().end(), packed_gradient.bytes().begin()))
          << name_of(loss);
    }
  }
}

}  // namespace
}  // namespace logitless::testing
