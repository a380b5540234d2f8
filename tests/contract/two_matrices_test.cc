// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states in two matrices give what the same rows in one matrix would: the oracle stacks them.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

// 37 tokens, of which the last 16 stand in the second matrix.
CrossEntropyTester small() { return CrossEntropyTester().tiles(16, 64).threads(2).second(16); }

TEST(TwoMatrices, EveryTypeLayoutAndPlan) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int64_t padding : {0, 3}) {
        CrossEntropyTester tester = small().dtype(dtype).layout(layout).padding(padding);
        for (const PlanKind plan : kPlans) tester.plan(plan).form(Form::kFused).matches_oracle();
        tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
      }
    }
  }
}

// The border at, before and behind the edges of tiles, which would hold rows of both matrices were they one;
// also tiles that hold everything.
TEST(TwoMatrices, TheBorderAnywhere) {
  for (const int64_t second : {0, 1, 4, 5, 6, 20, 21, 22, 36, 37}) {
    for (const int64_t row_tile : {16, 64}) {
      CrossEntropyTester tester = small().second(second).tiles(row_tile, 64);
      for (const PlanKind plan : kPlans) {
        tester.ignored(0).plan(plan).matches_oracle();
        tester.ignored(0.3).matches_oracle();
      }
    }
  }
}

// 20 rows make a run of their own. What is left, 5 rows at each side of the border, is one block whose row
// numbers follow one another; in memory they do not.
TEST(TwoMatrices, ShortRunsThatMeetAtTheBorder) {
  std::vector<int64_t> targets(31, 3);
  targets[20] = -100;
  for (const DType dtype : kDTypes) {
    CrossEntropyTester tester = small().dtype(dtype).tokens(31).second(5).targets(targets);
    for (const PlanKind plan : kPlans) {
      for (const bool may_drop_rows : {false, true}) tester.plan(plan).class_weights(may_drop_rows).matches_oracle();
    }
  }
}

TEST(TwoMatrices, SequencesOfTwoLengths) {
  CrossEntropyTester tester = small().tokens(3 * 7 + 3 * 5).second(3 * 5).batch(3).shift();
  for (const PlanKind plan : kPlans) {
    tester.plan(plan).ignored(0).matches_oracle();
    tester.ignored(0.2).matches_oracle();
  }
  // The second matrix has one position a sequence, which predicts nothing; and then no row.
  tester.tokens(24).second(3).matches_oracle();
  tester.tokens(21).second(0).matches_oracle();
}

TEST(TwoMatrices, PackedSequences) {
  CrossEntropyTester tester = small().packed({0, 9, 9, 21, 30, 37}).second(16).shift();
  for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
  tester.packed({0, 9, 21, 21, 21, 37}).second(16).matches_oracle();
}

TEST(TwoMatrices, ManyChunks) {
  for (const double ignored : {0.0, 0.3}) {
    CrossEntropyTester tester = small().tokens(150).second(70).vocab(400).ignored(ignored);
    const Plan plan = tester.plan(PlanKind::kOnePass).tightest_workspace().planned();
    EXPECT_LE(plan.chunk_rows * 2, plan.active_rows);
    for (const bool accumulate : {false, true}) tester.accumulate(accumulate).matches_oracle();
    tester.plan(PlanKind::kTwoPass).tightest_workspace().matches_oracle();
  }
}

TEST(TwoMatrices, OutputsInEveryForm) {
  for (const HeadLayout layout : kLayouts) {
    for (const PlanKind plan : kPlans) {
      CrossEntropyTester tester = small().layout(layout).plan(plan).ignored(0.2).padding(2);
      tester.accumulate().matches_oracle();
      tester.accumulate(false).sink().matches_oracle();
      tester.sink(false).gradients(true, false, false).matches_oracle();
      if (plan != PlanKind::kExpectedRow) tester.gradients(false, true, true).matches_oracle();
      tester.gradients(false, false, false).plan(PlanKind::kAuto).matches_oracle();
      tester.gradients(true, true, true).plan(plan).dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16);
      for (const bool accumulate : {false, true}) tester.accumulate(accumulate).matches_oracle();
    }
  }
}

TEST(TwoMatrices, TheSizesThatTheLibraryChooses) {
  for (const DType dtype : kDTypes) {
    CrossEntropyTester tester = small().tiles(0, 0).dtype(dtype).tokens(700).second(333).vocab(130).ignored(0.01);
    for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
  }
}

// Rows that drop out leave others side by side that were not, at the border too.
TEST(TwoMatrices, RowsThatDropOut) {
  for (const DType dtype : kDTypes) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      TokenStatsTester tester = TokenStatsTester().tiles(16, 64).threads(2).dtype(dtype).second(18).seed(seed);
      tester.statistics_match_oracle();
      tester.backward_matches_oracle();
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass})
        tester.plan(plan).token_loss_matches_oracle();
      tester.plan(PlanKind::kAuto).tiles(64, 64).ignored(0.4).backward_matches_oracle();
      tester.plan(PlanKind::kOnePass).token_loss_matches_oracle();
    }
  }
}

TEST(TwoMatrices, EmptyAndIgnoredBatches) {
  for (CrossEntropyTester tester : {small().tokens(0).second(0), small().ignored(1)}) {
    for (const PlanKind plan : kPlans) {
      tester.plan(plan).accumulate(false).matches_oracle();
      tester.accumulate().matches_oracle();
    }
  }
}

// A matrix without rows needs no memory, neither for its states nor for their gradients.
TEST(TwoMatrices, OneWithoutRowsMayBeNull) {
  InputSpec spec;
  Inputs inputs(spec);
  const LmHead head = inputs.head_view();
  const ConstMatrix states = inputs.hidden.view();
  const ConstMatrix none(nullptr, states.dtype, 0, states.cols);
  GradientOutputs outputs(inputs, {});
  const Context context;
  cross_entropy(context, inputs.hidden_view(), head, inputs.targets_view(), {}, outputs.gradients());
  const std::vector<std::byte> one_matrix = outputs.bytes();
  GradientOutputs first(inputs, {});
  cross_entropy(context, HiddenStates::pair(states, none, 1), head, inputs.targets_view(), {}, first.gradients());
  EXPECT_TRUE(first.bytes() == one_matrix);
  GradientOutputs second(inputs, {});
  Gradients gradients = second.gradients();
  std::swap(gradients.d_hidden, gradients.d_hidden_second);
  cross_entropy(context, HiddenStates::pair(none, states, 1), head, inputs.targets_view(), {}, gradients);
  EXPECT_TRUE(second.bytes() == one_matrix);
}

// A good call for a case to spoil: 4 + 2 tokens, 5 vocabulary entries, H = 4.
struct Call {
  static InputSpec spec() {
    InputSpec spec;
    spec.tokens = 6;
    spec.second_tokens = 2;
    spec.vocab = 5;
    spec.hidden = 4;
    return spec;
  }
  Call()
      : inputs(spec()),
        outputs(inputs, {}),
        hidden(inputs.hidden_view()),
        head(inputs.head_view()),
        targets(inputs.targets_view()),
        gradients(outputs.gradients()) {}

  Inputs inputs;
  GradientOutputs outputs;
  HiddenStates hidden;
  LmHead head;
  Targets targets;
  Gradients gradients;
  std::vector<int64_t> offsets;
};

using BadCase = testing::BadCase<Call>;

void expect_refused(const BadCase& bad) {
  SCOPED_TRACE(bad.name);
  Call call;
  bad.spoil(call);
  const std::vector<std::byte> before = call.outputs.bytes();
  for (const auto& function : {cross_entropy, dense_cross_entropy}) {
    expect_invalid_input(bad.parts,
                         [&] { function(Context(), call.hidden, call.head, call.targets, {}, call.gradients); });
  }
  EXPECT_TRUE(call.outputs.bytes() == before) << "an output was written";
}

std::function<void(Call&)> offsets_of(std::vector<int64_t> offsets) {
  return [offsets](Call& c) { c.hidden.offsets = c.offsets = offsets; };
}

TEST(TwoMatrices, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  EXPECT_NO_THROW(cross_entropy(Context(), call.hidden, call.head, call.targets, {}, call.gradients));
}

TEST(TwoMatrices, BadHiddenStates) {
  const std::vector<BadCase> cases = {
      {"null", [](Call& c) { c.hidden.second.data = nullptr; }, {"hidden.second.data is null"}},
      {"forgotten rows", [](Call& c) { c.hidden.second = {}; }, {"targets has 6", "4 rows"}},
      {"negative rows", [](Call& c) { c.hidden.second.rows = -1; }, {"hidden.second.rows = -1"}},
      {"too few rows", [](Call& c) { c.hidden.second.rows = 1; }, {"targets has 6", "5 rows"}},
      {"columns", [](Call& c) { c.hidden.second.cols = 3; }, {"hidden.second has 3 columns", "hidden has 4"}},
      {"stride", [](Call& c) { c.hidden.second.stride = 2; }, {"hidden.second.stride = 2"}},
      {"type",
       [](Call& c) { c.hidden.second.dtype = DType::kBFloat16; },
       {"hidden.second is bfloat16", "hidden is float32"}},
      {"alignment",
       [](Call& c) { c.hidden.second.data = static_cast<const char*>(c.hidden.second.data) + 1; },
       {"hidden.second.data", "not aligned"}},
      {"sequences of the first", [](Call& c) { c.hidden.sequences = 3; }, {"hidden has 4 rows", "3 sequences"}},
      {"sequences of the second", [](Call& c) { c.hidden.sequences = 4; }, {"hidden.second has 2 rows", "4 sequences"}},
      {"a sequence over the border", offsets_of({0, 3, 6}), {"offsets has no entry 4", "hidden.second"}},
      {"offsets of the first alone", offsets_of({0, 4}), {"offsets[1] = 4", "6"}},
  };
  for (const BadCase& bad : cases) expect_refused(bad);
}

TEST(TwoMatrices, BadOutputs) {
  const auto data_of = [](const ConstMatrix& matrix) { return const_cast<void*>(matrix.data); };
  const std::vector<BadCase> cases = {
      {"second missing", [](Call& c) { c.gradients.d_hidden_second = {}; }, {"d_hidden_second is not"}},
      {"first missing", [](Call& c) { c.gradients.d_hidden = {}; }, {"d_hidden_second is set but d_hidden is not"}},
      {"rows of all", [](Call& c) { c.gradients.d_hidden.rows = 6; }, {"d_hidden is [6, 4]", "hidden is [4, 4]"}},
      {"rows",
       [](Call& c) { c.gradients.d_hidden_second.rows = 4; },
       {"d_hidden_second is [4, 4]", "hidden.second is [2, 4]"}},
      {"stride", [](Call& c) { c.gradients.d_hidden_second.stride = 3; }, {"d_hidden_second.stride = 3"}},
      {"type", [](Call& c) { c.gradients.d_hidden_second.dtype = DType::kFloat64; }, {"d_hidden_second is float64"}},
      {"over hidden.second",
       [=](Call& c) { c.gradients.d_hidden_second.data = data_of(c.hidden.second); },
       {"d_hidden_second", "overlaps", "hidden.second"}},
      {"d_hidden over hidden.second",
       [](Call& c) {
         // d_hidden is longer, and must not reach what lies behind hidden.second.
         static std::vector<float> room(64);
         c.hidden.second.data = c.gradients.d_hidden.data = room.data();
       },
       {"d_hidden", "overlaps", "hidden.second"}},
      {"over hidden",
       [=](Call& c) { c.gradients.d_hidden_second.data = data_of(c.hidden.states); },
       {"d_hidden_second", "overlaps", "hidden"}},
      {"over d_hidden",
       [](Call& c) { c.gradients.d_hidden_second.data = c.gradients.d_hidden.data; },
       {"d_hidden_second", "overlaps", "d_hidden"}},
      {"without a second matrix",
       [](Call& c) {
         c.hidden = HiddenStates(c.hidden.states);
         c.targets.size = 4;
       },
       {"d_hidden_second is set but hidden.second is not"}},
  };
  for (const BadCase& bad : cases) expect_refused(bad);
}

// The two types would each be right.
TEST(TwoMatrices, OutputsOfTwoTypes) {
  InputSpec spec = Call::spec();
  spec.dtype = DType::kBFloat16;
  Inputs inputs(spec);
  GradientOutputs wide(inputs, {});
  RunSpec run;
  run.gradient_dtype = DType::kBFloat16;
  GradientOutputs narrow(inputs, run);
  Gradients gradients = wide.gradients();
  gradients.d_hidden_second = narrow.gradients().d_hidden_second;
  expect_invalid_input({"d_hidden_second is bfloat16 but d_hidden is float32"}, [&] {
    cross_entropy(Context(), inputs.hidden_view(), inputs.head_view(), inputs.targets_view(), {}, gradients);
  });
}

// Dense multiplies one matrix: it copies the rows of both together.
TEST(TwoMatrices, TheDensePath) {
  for (const DType dtype : kDTypes) {
    for (const int64_t second : {0, 16, 37}) {
      CrossEntropyTester tester = small().second(second).dtype(dtype).padding(3).ignored(0.2).dense();
      for (const bool accumulate : {false, true}) tester.accumulate(accumulate).matches_oracle();
    }
  }
}

}  // namespace
}  // namespace logitless::testing
