// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// No access outside of any buffer.
#include "support/guard_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "support/policy_tester.h"
#include "support/preference_tester.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};
constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

// Calls `test` with testers whose every input and output lies against a forbidden page, at its end and at its
// beginning.
template <class TesterType, class Test>
void on_guard_pages(const Test& test) {
  for (const Flush flush : {Flush::kEnd, Flush::kBegin}) {
    SCOPED_TRACE(flush == Flush::kEnd ? "flush with the end" : "flush with the beginning");
    TesterType tester;
    tester.memory([flush](size_t bytes) { return guarded_memory(bytes, flush); });
    test(tester.tiles(16, 64).threads(2));
  }
}

TEST(GuardPages, EveryTypeLayoutAndPlan) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    tester.ignored(0.25).class_weights().temperatures().softcap(9);
    for (const DType dtype : kDTypes) {
      for (const HeadLayout layout : kLayouts) {
        for (const int64_t padding : {0, 3}) {
          tester.dtype(dtype).layout(layout).padding(padding);
          for (const PlanKind plan : kPlans) {
            tester.label_smoothing(0.1).plan(plan).form(Form::kFused);
            if (!tester.can_run(plan)) tester.label_smoothing(0);
            tester.matches_oracle();
          }
          tester.plan(PlanKind::kAuto).form(Form::kSplit).matches_oracle();
        }
      }
    }
  });
}

TEST(GuardPages, OddShapes) {
  struct Shape {
    int64_t tokens, hidden, vocab;
  };
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const Shape& s :
         {Shape{1, 1, 1}, {1, 7, 65}, {17, 1, 63}, {16, 16, 64}, {33, 31, 129}, {5, 300, 3}, {0, 4, 9}}) {
      for (const DType dtype : kDTypes) {
        for (const HeadLayout layout : kLayouts) {
          tester.tokens(s.tokens).hidden(s.hidden).vocab(s.vocab).dtype(dtype).layout(layout);
          for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
        }
      }
    }
  });
}

TEST(GuardPages, EveryInstructionSet) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    tester.softcap(5).metrics().label_smoothing(0.2).class_weights();
    for (const std::string& target : simd_targets()) {
      for (const DType dtype : kDTypes) tester.dtype(dtype).simd_target(target).matches_oracle();
    }
  });
}

TEST(GuardPages, OutputsInEveryForm) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const HeadLayout layout : kLayouts) {
      tester.layout(layout).ignored(0.3).shift().targets32().dtype(DType::kFloat32);
      for (const PlanKind plan : kPlans) {
        tester.plan(plan).accumulate().matches_oracle();
        tester.accumulate(false).sink().matches_oracle();
        tester.sink(false);
      }
      tester.dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16);
      for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
      tester.gradient_dtype(std::nullopt);
    }
  });
}

TEST(GuardPages, SmallestWorkspace) {
  on_guard_pages<CrossEntropyTester>([](CrossEntropyTester tester) {
    for (const PlanKind plan : kPlans) tester.tokens(70).plan(plan).tightest_workspace().matches_oracle();
  });
}

TEST(GuardPages, TokenStats) {
  on_guard_pages<TokenStatsTester>([](TokenStatsTester tester) {
    tester.cross().temperatures().packed({0, 5, 5, 37}).shift();
    for (const DType dtype : kDTypes) {
      tester.dtype(dtype).statistics_match_oracle();
      tester.backward_matches_oracle();
    }
  });
}

// What belongs to the batch lies on guard pages too: ids, mask, advantages and log-probabilities of other
// policies.
TEST(GuardPages, PolicyLosses) {
  on_guard_pages<PolicyTester>([](PolicyTester tester) {
    for (const PolicyLossType variant : {PolicyLossType::kGrpo, PolicyLossType::kRloo}) {
      tester.packed({0, 4, 4, 5, 17}).vocab(70).loss_type(variant).temperatures();
      tester.twist("beta with k3").twist("sequence_truncate clip_max").twist("entropy bonus");
      for (const DType dtype : kDTypes) {
        tester.dtype(dtype).batch_dtype(dtype);
        for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) tester.plan(plan).matches_oracle();
      }
      tester.twist("advantages per token").twist("top entropy quantile");
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) tester.batch_dtype(dtype).matches_oracle();
    }
  });
}

constexpr ReferenceForm kReferences[] = {ReferenceForm::kSequences, ReferenceForm::kTokens, ReferenceForm::kModel};

TEST(GuardPages, PreferenceLosses) {
  on_guard_pages<PreferenceTester>([](PreferenceTester tester) {
    for (const PreferenceLossType loss : {PreferenceLossType::kSigmoid, PreferenceLossType::kAotUnpaired}) {
      tester.vocab(70).loss(loss);
      for (const ReferenceForm form : kReferences) {
        tester.packed({0, 9, 9, 12, 20, 21, 30}).reference(form);
        for (const DType dtype : kDTypes) tester.dtype(dtype).reference_dtype(dtype).matches_oracle();
        tester.shift().plan(PlanKind::kTwoPass).matches_oracle();
        tester.shift(false).plan(PlanKind::kAuto);
      }
    }
  });
}

TEST(GuardPages, Kto) {
  on_guard_pages<KtoTester>([](KtoTester tester) {
    for (const ReferenceForm form : kReferences) {
      tester.packed({0, 9, 9, 12, 30, 31}).vocab(70).reference(form);
      for (const DType dtype : kDTypes) {
        tester.dtype(dtype).reference_dtype(dtype);
        for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
      }
    }
  });
}

}  // namespace
}  // namespace logitless::testing
