// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// cross_entropy within the derived bounds of docs/numerics.md. Drawn calls combine its options.
#include <gtest/gtest.h>

#include <string>

#include "support/testers.h"

namespace logitless::testing {
namespace cross_entropy_test {

constexpr PlanKind kPlans[] = {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kExpectedRow};

TEST(CrossEntropy, EveryTypeLayoutPlanAndBackend) {
  for (const std::string& backend : gemm_backends()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
        CrossEntropyTester tester = CrossEntropyTester().gemm_backend(backend).dtype(dtype).layout(layout);
        tester.tiles(16, 64).threads(2).ignored(0.2).padding(3);
        for (const PlanKind plan : kPlans) tester.plan(plan).matches_oracle();
        tester.plan(PlanKind::kAuto).form(Form::kSplit).upstream().matches_oracle();
      }
    }
  }
}

TEST(CrossEntropy, ShapesOfRealUse) {
  for (const PlanKind plan : kPlans) {
    CrossEntropyTester().tokens(252).hidden(507).vocab(123).label_smoothing(0.1).plan(plan).matches_oracle();
    CrossEntropyTester().tokens(257).hidden(33).vocab(2049).metrics().plan(plan).matches_oracle();
    CrossEntropyTester tester = CrossEntropyTester().tokens(4 * 128).batch(4).hidden(512).vocab(2560).plan(plan);
    tester.shift().ignored(0.1).matches_oracle();
  }
}

}  // namespace cross_entropy_test
}  // namespace logitless::testing
