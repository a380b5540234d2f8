// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states, their gradients and targets that are slices or transposes give what copies of them would.
// HostTensor fills what stands between the rows with NaN of a kind, and matches_oracle() looks at it again
// after the call; between strided targets stand ids that would be refused.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/guard_pages.h"
#include "support/logits_tester.h"
#include "support/policy_tester.h"
#include "support/preference_tester.h"
#include "support/refusal.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};
constexpr Rows kRows[] = {Rows::kFollowing, Rows::kSlice, Rows::kTransposed};

// 3 sequences of 21 tokens: a tile of 16 rows holds no whole sequence, one of 64 holds all.
CrossEntropyTester small() {
  return CrossEntropyTester().tokens(63).batch(3).tiles(16, 64).threads(2).strided_targets();
}

// Runs `test` with every pair of places but the one that all other tests have.
template <class TesterType, class Test>
void with_all_rows(TesterType tester, const Test& test) {
  for (const Rows in : kRows) {
    for (const Rows out : kRows) {
      if (in == Rows::kFollowing && out == Rows::kFollowing) continue;
      test(tester.hidden_rows(in).d_hidden_rows(out));
    }
  }
}

TEST(Strides, EveryTypeLayoutAndPlan) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      with_all_rows(small().dtype(dtype).layout(layout).padding(3), [](CrossEntropyTester tester) {
        for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
        tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
      });
    }
  }
}

// The only slice of a vocabulary sums where the call has its rows.
TEST(Strides, OnePositionASequenceOfASlice) {
  with_all_rows(small().tokens(7).batch(7).vocab(150).slices({150}), [](CrossEntropyTester tester) {
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) tester.plan(plan).matches_oracle();
  });
}

TEST(Strides, IgnoredRowsAndShift) {
  for (const double ignored : {0.1, 0.6}) {
    for (const bool shift : {false, true}) {
      with_all_rows(small().ignored(ignored).shift(shift), [](CrossEntropyTester tester) {
        for (const PlanKind plan : kPlans) {
          for (const bool may_drop_rows : {false, true})
            tester.plan(plan).class_weights(may_drop_rows).matches_oracle();
        }
      });
    }
  }
}

// Runs as long as tiles, of which some end where a sequence does; one position, one sequence, no row.
TEST(Strides, OddShapes) {
  struct Shape {
    int64_t sequences, time;
  };
  for (const Shape& s : {Shape{4, 16}, {16, 4}, {40, 1}, {1, 40}, {2, 8}, {3, 0}}) {
    for (const int64_t row_tile : {16, 64}) {
      CrossEntropyTester tester = small().batch(s.sequences).tokens(s.sequences * s.time).tiles(row_tile, 64);
      with_all_rows(tester, [](CrossEntropyTester one) {
        for (const PlanKind plan : kPlans) one.plan(plan).matches_oracle();
      });
    }
  }
}

TEST(Strides, NoSequence) {
  const float weight[20] = {};
  const LmHead head({weight, 5, 4}, HeadLayout::kVocabHidden);
  float* none = nullptr;
  Gradients gradients;
  set_d_hidden(gradients, none, 0, 3, 4, 16);
  const auto result = cross_entropy(Context(), HiddenStates(none, 0, 3, 4, 16), head,
                                    Targets(static_cast<const int32_t*>(nullptr), 0, 3, 4), {}, gradients);
  EXPECT_EQ(result.loss, 0);
}

TEST(Strides, TheSizesThatTheLibraryChooses) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    with_all_rows(small().tiles(0, 0).dtype(dtype).tokens(1400).batch(2).vocab(130), [](CrossEntropyTester tester) {
      for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
    });
  }
}

TEST(Strides, OutputsInEveryForm) {
  with_all_rows(small().ignored(0.05).padding(2), [](CrossEntropyTester tester) {
    for (const PlanKind plan : kPlans) {
      tester.dtype(DType::kFloat32).gradient_dtype({}).plan(plan);
      tester.accumulate().matches_oracle();
      tester.accumulate(false).sink().matches_oracle();
      tester.sink(false).gradients(true, false, false).matches_oracle();
      if (plan != PlanKind::kExpectedRow) tester.gradients(false, true, true).matches_oracle();
      tester.gradients(true, true, true).dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16);
      for (const bool accumulate : {false, true}) tester.accumulate(accumulate).matches_oracle();
    }
  });
}

TEST(Strides, ManyChunks) {
  CrossEntropyTester tester = small().tokens(155).batch(5).vocab(400);
  with_all_rows(tester, [](CrossEntropyTester one) {
    const Plan plan = one.plan(PlanKind::kOnePass).tightest_workspace().planned();
    EXPECT_LE(plan.chunk_rows * 2, plan.active_rows);
    one.matches_oracle();
    one.plan(PlanKind::kTwoPass).tightest_workspace().matches_oracle();
  });
}

TEST(Strides, TargetsOfEveryType) {
  for (const bool targets32 : {false, true}) {
    CrossEntropyTester tester = small().targets32(targets32).ignored(0.2).shift();
    tester.matches_oracle();
    tester.batch(1).matches_oracle();
    tester.packed({0, 9, 40, 63}).matches_oracle();
    tester.tokens(0).packed({0, 0}).strided_targets(false).matches_oracle();
  }
}

// Rows that drop out leave others side by side that were not, at the end of a sequence too.
TEST(Strides, TokenStatisticsAndRowsThatDropOut) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TokenStatsTester tester = TokenStatsTester().tokens(63).batch(3).tiles(16, 64).threads(2).strided_targets();
    with_all_rows(tester.seed(seed), [](TokenStatsTester one) {
      one.statistics_match_oracle();
      one.backward_matches_oracle();
      for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) one.plan(plan).token_loss_matches_oracle();
      one.plan(PlanKind::kTwoPass).tiles(64, 64).ignored(0.4).backward_matches_oracle();
    });
  }
}

TEST(Strides, PolicyLosses) {
  for (const PolicyLossType variant : {PolicyLossType::kGrpo, PolicyLossType::kRloo}) {
    PolicyTester tester = PolicyTester().padded(4, 9).loss_type(variant).tiles(16, 64).strided_targets();
    with_all_rows(tester, [](PolicyTester one) {
      for (const PlanKind plan : kPlans) one.plan(plan).matches_oracle();
    });
  }
}

TEST(Strides, PreferenceLosses) {
  PreferenceTester pairs = PreferenceTester().tiles(16, 64).strided_targets().reference(ReferenceForm::kModel);
  with_all_rows(pairs, [](PreferenceTester one) {
    for (const PlanKind plan : kPlans) one.plan(plan).matches_oracle();
  });
  with_all_rows(KtoTester().tiles(16, 64).strided_targets(), [](KtoTester one) {
    for (const PlanKind plan : kPlans) one.plan(plan).matches_oracle();
  });
}

// Logits have had strides of their own; targets beside them may have them too.
TEST(Strides, TargetsOfFinishedLogits) {
  for (const bool time_first : {false, true}) {
    LogitsTester tester = LogitsTester().tokens(36).batch(3).tiles(16, 64).ignored(0.2).strided_targets();
    tester.later(1).time_first(time_first).matches_oracle();
    tester.shift().targets32().matches_oracle();
  }
  PolicyTester().padded(4, 9).from_logits().strided_targets().matches_oracle();
}

TEST(Strides, GuardPages) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    CrossEntropyTester tester = small().ignored(0.25).padding(3);
    tester.memory([flush](size_t bytes) { return guarded_memory(bytes, flush); });
    for (const DType dtype : kDTypes) {
      with_all_rows(tester.dtype(dtype), [](CrossEntropyTester one) {
        for (const PlanKind plan : kPlans) one.plan(plan).matches_oracle();
      });
    }
  }
}

// The bits are those of copies wherever the same rows make the same tiles: here each sequence is one, of as
// many rows as every BLAS takes at a time.
TEST(Strides, BitsOfCopies) {
  CrossEntropyTester tester = small().tokens(192).batch(4).tiles(48, 64).strided_targets(false);
  for (const PlanKind plan : kPlans) {
    const CrossEntropyResult copies = tester.plan(plan).hidden_rows(Rows::kFollowing).run_once().result;
    for (const Rows rows : {Rows::kSlice, Rows::kTransposed}) {
      for (const bool strided : {false, true}) {
        const CrossEntropyResult run = tester.strided_targets(strided).hidden_rows(rows).run_once().result;
        EXPECT_EQ(run.loss, copies.loss);
        EXPECT_EQ(run.per_token_loss, copies.per_token_loss);
      }
    }
  }
}

// A good call for a case to spoil: 2 sequences of 3 tokens each with one row to spare, 5 vocabulary entries,
// H = 4.
struct Call {
  std::vector<float> states = std::vector<float>(40, 0.5f), weight = std::vector<float>(20, 0.25f);
  std::vector<float> written = std::vector<float>(200, 7.0f);
  std::vector<int64_t> ids = {0, 9, 1, 9, 2, 9, 9, 9, 3, 9, 4, 9, 0, 9, 9, 9};
  std::vector<int64_t> offsets;
  HiddenStates hidden{states.data(), 2, 3, 4, 16};
  LmHead head{{weight.data(), 5, 4}, HeadLayout::kVocabHidden};
  Targets targets{ids.data(), 2, 3, 8, 2};
  Gradients gradients;

  Call() { set_d_hidden(gradients, written.data(), 2, 3, 4, 16); }
};

using BadCase = testing::BadCase<Call>;

void expect_refused(const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    Call call;
    bad.spoil(call);
    const std::vector<float> states = call.states, written = call.written;
    expect_invalid_input(bad.parts,
                         [&] { cross_entropy(Context(), call.hidden, call.head, call.targets, {}, call.gradients); });
    EXPECT_TRUE(call.written == written && call.states == states) << "an output was written";
  }
}

TEST(StridesBadInput, TheCallThatTheCasesSpoilIsGood) {
  Call call;
  EXPECT_NO_THROW(cross_entropy(Context(), call.hidden, call.head, call.targets, {}, call.gradients));
  for (const size_t at : {0, 11, 16, 27}) EXPECT_NE(call.written[at], 7.0f) << at;
  for (const size_t at : {12, 15, 28, 199}) EXPECT_EQ(call.written[at], 7.0f) << at;
}

TEST(StridesBadInput, HiddenStates) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 2;
  expect_refused({
      {"short", [](Call& c) { c.hidden.batch_stride = 3; }, {"hidden.batch_stride = 3", "row of 4 elements"}},
      {"negative", [](Call& c) { c.hidden.batch_stride = -16; }, {"hidden.strides[0] = -16 is negative"}},
      {"huge", [=](Call& c) { c.hidden.batch_stride = kHuge; }, {"hidden of [2, 3, 4]", "64-bit"}},
      {"rows", [](Call& c) { c.hidden.states.stride = 3; }, {"hidden.stride = 3"}},
      {"sequences", [](Call& c) { c.hidden.sequences = 4; }, {"targets has 6 entries but hidden has 4 rows"}},
      {"packed",
       [](Call& c) {
         c.hidden.offsets = c.offsets = {0, 3, 6};
       },
       {"offsets", "packed", "[B, T, H]"}},
  });
}

TEST(StridesBadInput, Gradients) {
  expect_refused({
      {"short", [](Call& c) { c.gradients.d_hidden_batch_stride = 3; }, {"d_hidden_batch_stride = 3", "4 elements"}},
      {"sequences of one position that overlap",
       [](Call& c) {
         c.hidden.sequences = 6;
         c.hidden.batch_stride.reset();
         c.ids.assign(c.ids.size(), 0);
         c.targets = Targets(c.ids.data(), 6, 1, 2, 2);
         c.gradients.d_hidden_batch_stride = 3;
       },
       {"d_hidden_batch_stride = 3", "4 elements"}},
      {"sequences that overlap",
       [](Call& c) { c.gradients.d_hidden_batch_stride = 11; },
       {"d_hidden_batch_stride = 11", "overlap", "12", "d_hidden.stride = 4"}},
      {"positions that overlap",
       [](Call& c) {
         c.gradients.d_hidden_batch_stride = 4;
         c.gradients.d_hidden.stride = 7;
       },
       {"d_hidden_batch_stride = 4", "overlap", "d_hidden.stride = 7", "8"}},
      {"over hidden's last row",
       [](Call& c) { c.gradients.d_hidden.data = c.states.data() + 27; },
       {"d_hidden", "overlaps", "hidden"}},
      {"between hidden's rows",
       [](Call& c) {
         c.gradients.d_hidden.data = c.states.data() + 12;
         c.gradients.d_hidden_batch_stride.reset();
       },
       {"d_hidden", "overlaps", "hidden"}},
      {"over targets",
       [](Call& c) {
         c.targets.data64 = reinterpret_cast<const int64_t*>(c.written.data());
         for (int64_t i = 0; i < 13; ++i) reinterpret_cast<int64_t*>(c.written.data())[i] = 0;
       },
       {"d_hidden", "overlaps", "targets"}},
  });
}

TEST(StridesBadInput, Targets) {
  expect_refused({
      {"stride", [](Call& c) { c.targets.stride = 0; }, {"targets.stride = 0", "positive"}},
      {"batch stride", [](Call& c) { c.targets.batch_stride = 0; }, {"targets.batch_stride = 0", "positive"}},
      {"negative", [](Call& c) { c.targets.batch_stride = -8; }, {"targets.strides[0] = -8 is negative"}},
      {"time", [](Call& c) { c.targets.time = 4; }, {"targets has 4 entries but hidden has 6 rows"}},
      {"number", [](Call& c) { c.targets = Targets(c.ids.data(), 2, 2, 8, 2); }, {"targets has 4", "6 rows"}},
      {"huge",
       [](Call& c) { c.targets.batch_stride = std::numeric_limits<int64_t>::max() / 2; },
       {"targets of [2, 3, 1]", "64-bit"}},
      {"an id", [](Call& c) { c.ids[10] = 5; }, {"targets[4] = 5", "[0, 5)"}},
  });
}

}  // namespace
}  // namespace logitless::testing
