// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The materialised baseline against the same oracle.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/policy_tester.h"
#include "support/preference_tester.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

CrossEntropyTester dense() { return CrossEntropyTester().threads(2).dense(); }

TEST(DenseCrossEntropy, EveryTypeLayoutAndThreads) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int threads : {1, 2, 3}) {
        CrossEntropyTester tester = dense().dtype(dtype).layout(layout).threads(threads).ignored(0.25);
        tester.matches_oracle();
        tester.accumulate().padding(3).matches_oracle();
      }
    }
  }
}

TEST(DenseCrossEntropy, EveryOption) {
  const std::vector<std::function<void(CrossEntropyTester&)>> options = {
      [](auto& t) { t.bias(false); },
      [](auto& t) { t.softcap(5); },
      [](auto& t) { t.temperature(0.4); },
      [](auto& t) { t.temperatures(); },
      [](auto& t) { t.temperatures().temperature_meaning(TemperatureMeaning::kScaleLogp).z_loss(0.01); },
      [](auto& t) { t.label_smoothing(0.1); },
      [](auto& t) { t.z_loss(0.003); },
      [](auto& t) { t.class_weights().label_smoothing(0.2); },
      [](auto& t) { t.reduction(Reduction::kSum).class_weights(); },
      [](auto& t) { t.reduction(Reduction::kNone).z_loss(0.01).ignored(0.3); },
      [](auto& t) { t.loss_scale(1024).metrics(); },
      [](auto& t) { t.num_items_in_batch(123.5); },
      [](auto& t) { t.shift(); },
      [](auto& t) { t.tokens(36).batch(4).shift().ignored(0.2); },
      [](auto& t) {
        t.packed({0, 1, 1, 14, 31, 33, 37}).shift();
      },
      [](auto& t) { t.targets32().ignored(0.5); },
  };
  for (size_t k = 0; k < options.size(); ++k) {
    SCOPED_TRACE("option " + std::to_string(k));
    for (const DType dtype : kDTypes) {
      CrossEntropyTester tester = dense().dtype(dtype).layout(kLayouts[k % 2]);
      options[k](tester);
      tester.matches_oracle();
    }
  }
}

TEST(DenseCrossEntropy, Shapes) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 2047, 2048, 2049, 4103}) {
    dense().vocab(vocab).tokens(9).softcap(20).label_smoothing(0.1).matches_oracle();
  }
  for (const int64_t tokens : {0, 1, 2, 33}) dense().tokens(tokens).metrics().matches_oracle();
  for (const int64_t hidden : {1, 17, 256}) dense().hidden(hidden).matches_oracle();
  dense().tokens(252).hidden(507).vocab(123).matches_oracle();
  dense().ignored(1).metrics().matches_oracle();
}

TEST(DenseCrossEntropy, EachGradientAlone) {
  for (const DType dtype : kDTypes) {
    for (int asked = 0; asked < 8; ++asked) {
      dense().dtype(dtype).gradients(asked & 1, asked & 2, asked & 4).ignored(0.2).matches_oracle();
    }
  }
}

TEST(DenseCrossEntropy, Bfloat16Gradients) {
  for (const HeadLayout layout : kLayouts) {
    CrossEntropyTester tester = dense().dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).layout(layout);
    tester.tokens(100).vocab(5000).hidden(24).matches_oracle();
    tester.accumulate().matches_oracle();
  }
}

TEST(DenseCrossEntropy, EveryInstructionSet) {
  for (const std::string& target : simd_targets()) {
    dense().simd_target(target).softcap(12).temperatures().label_smoothing(0.1).z_loss(0.01).matches_oracle();
  }
}

// Every loss runs on the plan, and split calls do.
TEST(DensePlan, PolicyLosses) {
  for (const PolicyLossType variant : all_of<PolicyLossType>()) {
    for (const DType dtype : kDTypes) {
      PolicyTester tester;
      tester.loss_type(variant).vocab(70).hidden(11).dtype(dtype).finite_everywhere().plan(PlanKind::kDense);
      EXPECT_EQ(tester.matches_oracle().result.plan.kind, PlanKind::kDense);
    }
  }
}

TEST(DensePlan, PreferenceLosses) {
  for (const PreferenceLossType loss : all_of<PreferenceLossType>()) {
    PreferenceTester tester;
    tester.loss(loss).vocab(70).hidden(11).finite_everywhere().plan(PlanKind::kDense).matches_oracle();
  }
  KtoTester().vocab(70).hidden(11).finite_everywhere().plan(PlanKind::kDense).matches_oracle();
}

TEST(DensePlan, StatisticsAndTheirGradients) {
  for (const DType dtype : kDTypes) {
    TokenStatsTester tester;
    tester.dtype(dtype).finite_everywhere().plan(PlanKind::kDense);
    tester.statistics_match_oracle();
    EXPECT_EQ(tester.token_loss_matches_oracle().kind, PlanKind::kDense);
  }
}

}  // namespace
}  // namespace logitless::testing
