// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The dense head of comparisons, held to the oracle of the library's own calls.
#include "dense/dense.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/calls.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

// The tester calls dense::run(). Other tasks are in dense_heads.cc.
const bool kRunsDense = [] {
  run_task<CrossEntropy> = &dense::run<CrossEntropy>;
  return true;
}();

// Every row is multiplied, so that none may hold a NaN.
CrossEntropyTester dense_call() { return CrossEntropyTester().threads(2).finite_everywhere(); }

TEST(Dense, EveryTypeLayoutAndThreads) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int threads : {1, 2, 3}) {
        CrossEntropyTester call = dense_call().dtype(dtype).layout(layout).threads(threads).ignored(0.25);
        call.matches_oracle();
        call.padding(3).matches_oracle();
      }
    }
  }
}

TEST(Dense, EveryOption) {
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
      CrossEntropyTester call = dense_call().dtype(dtype).layout(kLayouts[k % 2]);
      options[k](call);
      call.matches_oracle();
    }
  }
}

TEST(Dense, Shapes) {
  for (const int64_t vocab : {1, 2, 63, 64, 65, 2047, 2048, 2049, 4103}) {
    dense_call().vocab(vocab).tokens(9).softcap(20).label_smoothing(0.1).matches_oracle();
  }
  for (const int64_t tokens : {0, 1, 2, 33}) dense_call().tokens(tokens).metrics().matches_oracle();
  for (const int64_t hidden : {1, 17, 256}) dense_call().hidden(hidden).matches_oracle();
  dense_call().tokens(252).hidden(507).vocab(123).matches_oracle();
  dense_call().ignored(1).metrics().matches_oracle();
}

TEST(Dense, EachGradientAlone) {
  for (const DType dtype : kDTypes) {
    for (int asked = 0; asked < 8; ++asked) {
      dense_call().dtype(dtype).gradients(asked & 1, asked & 2, asked & 4).ignored(0.2).matches_oracle();
    }
  }
}

TEST(Dense, Bfloat16Gradients) {
  for (const HeadLayout layout : kLayouts) {
    for (const double softcap : {0, 9}) {
      CrossEntropyTester call = dense_call().dtype(DType::kBFloat16).gradient_dtype(DType::kBFloat16).layout(layout);
      call.tokens(100).vocab(5000).hidden(24).softcap(softcap).matches_oracle();
      call.gradient_precision(GradientPrecision::kFloat32).matches_oracle();
    }
  }
}

TEST(Dense, EveryInstructionSet) {
  for (const std::string& target : simd_targets()) {
    dense_call().simd_target(target).softcap(12).temperatures().label_smoothing(0.1).z_loss(0.01).matches_oracle();
  }
}

}  // namespace
}  // namespace logitless::testing
