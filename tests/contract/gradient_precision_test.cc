// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// dL/dlogits in bfloat16, in two bfloat16 terms and in float32: each within the bound of its rounding, in
// every plan, and each as stated by the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace gradient_precision_test {

bool rounds_gradients(const std::string& backend) {
  return backend == "amx" || backend == "bfmmla" || backend == "onednn";
}

// Returns the best backend that rounds gradients, if there is one. "auto" takes it only if it is the fastest.
std::string bfloat16_backend() {
  const std::vector<std::string> names = gemm_backends();
  const auto found = std::find_if(names.begin(), names.end(), rounds_gradients);
  return found == names.end() ? "auto" : *found;
}
bool multiplies_bfloat16() { return bfloat16_backend() != "auto"; }

class OneCall {
 public:
  /// Adds `shared` times a direction to all rows of the head, and another one to all hidden states: all
  /// logits of a row then move by the same number.
  explicit OneCall(HeadLayout layout = HeadLayout::kVocabHidden, double shared = 0) : inputs_(spec(layout)) {
    for (int64_t h = 0; h < inputs_.spec.hidden && shared != 0; ++h) {
      const double of_head = shared * std::cos(static_cast<double>(h));
      for (int64_t v = 0; v < inputs_.spec.vocab; ++v) inputs_.set_weight(v, h, inputs_.weight_at(v, h) + of_head);
      for (int64_t i = 0; i < inputs_.spec.tokens; ++i) {
        inputs_.set_hidden(i, h, inputs_.hidden.get(i, h) + shared * std::sin(static_cast<double>(h)));
      }
    }
  }

  /// Makes `count` entries from `begin` on impossible; they share another direction.
  void hide(int64_t begin, int64_t count) {
    for (int64_t v = begin; v < begin + count; ++v) {
      inputs_.bias.set(0, v, -1000);
      for (int64_t h = 0; h < inputs_.spec.hidden; ++h) {
        inputs_.set_weight(v, h, inputs_.weight_at(v, h) + 40 * std::cos(5.0 * static_cast<double>(h)));
      }
    }
  }

  GradientOutputs gradients(GradientPrecision precision, PlanKind plan, bool d_weight = true) {
    RunSpec run;
    run.d_weight = run.d_bias = d_weight;
    GradientOutputs outputs(inputs_, run);
    Gradients gradients = outputs.gradients();
    gradients.backward = backward;
    options.gemm_backend = bfloat16_backend();
    options.gradient_precision = precision;
    options.plan = plan;
    options.row_tile = 16;
    options.vocab_tile = 64;
    cross_entropy(Context(options), inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(), loss,
                  gradients);
    return outputs;
  }

  ContextOptions options = {.threads = 2};
  BackwardOptions backward;
  CrossEntropy loss;

 private:
  static InputSpec spec(HeadLayout layout) {
    InputSpec spec;
    spec.dtype = DType::kBFloat16;
    spec.tokens = 60;
    spec.vocab = 500;
    spec.hidden = 64;
    spec.layout = layout;
    return spec;
  }
  Inputs inputs_;
};

// |a - b| / |b|
double distance(const HostTensor& a, const HostTensor& b) {
  double square = 0, norm = 0;
  for (int64_t row = 0; row < b.rows(); ++row) {
    for (int64_t col = 0; col < b.cols(); ++col) {
      square += std::pow(a.get(row, col) - b.get(row, col), 2);
      norm += std::pow(b.get(row, col), 2);
    }
  }
  return std::sqrt(square / norm);
}

// If a precision were ignored, a wider one would pass every bound. So each precision must lose exactly what
// it rounds.
TEST(GradientPrecision, LosesWhatItRounds) {
  if (!multiplies_bfloat16()) GTEST_SKIP() << "no backend of this machine multiplies bfloat16";
  OneCall call;
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    const auto d_hidden = [&](GradientPrecision precision) { return call.gradients(precision, plan).d_hidden(); };
    const HostTensor exact = d_hidden(GradientPrecision::kFloat32);
    const double native = distance(d_hidden(GradientPrecision::kNative), exact);
    EXPECT_GT(native, 0x1p-13);
    EXPECT_LT(native, 0x1p-8);
    const double split = distance(d_hidden(GradientPrecision::kSplit), exact);
    EXPECT_GT(split, 0x1p-23);
    EXPECT_LT(split, 0x1p-17);
  }
}

// Roundings add up along a direction that all rows of the head, or all states, share. Their sum is corrected,
// so that a shared direction costs no accuracy.
TEST(GradientPrecision, PutsBackWhatRowsShare) {
  if (!multiplies_bfloat16()) GTEST_SKIP() << "no backend of this machine multiplies bfloat16";
  for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
    OneCall call(layout, 2);
    // Without the correction, d_hidden was off by 1.1e-2 (1e-3 with expected rows), d_weight by 1.9e-3,
    // d_bias by 1.7e-3.
    const auto expect_small = [&](PlanKind plan, size_t workspace, bool d_weight = true) {
      SCOPED_TRACE(std::string(name_of(plan)) + " in " + std::to_string(workspace) + " bytes");
      const auto exact = call.gradients(GradientPrecision::kFloat32, PlanKind::kTwoPass, d_weight);
      OneCall small(layout, 2);
      small.options.workspace_bytes = workspace;
      const auto native = small.gradients(GradientPrecision::kNative, plan, d_weight);
      EXPECT_LT(distance(native.d_hidden(), exact.d_hidden()), d_weight ? 4e-3 : 4e-4);
      small.options.threads = 5;
      EXPECT_EQ(native.bytes(), small.gradients(GradientPrecision::kNative, plan, d_weight).bytes());
      if (!d_weight) return;
      EXPECT_LT(distance(native.d_weight(), exact.d_weight()), 1.4e-3);
      EXPECT_LT(distance(native.d_bias(), exact.d_bias()), 1e-6);
    };
    constexpr size_t kEnough = size_t{1} << 20, kForChunks = size_t{110} << 10;
    expect_small(PlanKind::kTwoPass, kEnough);
    expect_small(PlanKind::kOnePass, kEnough);
    expect_small(PlanKind::kOnePass, kForChunks);
    expect_small(PlanKind::kExpectedRow, kEnough, false);
  }
}

// Impossible entries do not affect the correction for shared directions, whatever their position.
TEST(GradientPrecision, PutsBackNothingOfEntriesThatNeverOccur) {
  if (!multiplies_bfloat16()) GTEST_SKIP() << "no backend of this machine multiplies bfloat16";
  for (const PlanKind plan : {PlanKind::kTwoPass, PlanKind::kExpectedRow}) {
    for (const int64_t begin : {0, 250}) {
      OneCall call(HeadLayout::kVocabHidden, 2);
      call.hide(begin, 250);
      const auto exact = call.gradients(GradientPrecision::kFloat32, PlanKind::kTwoPass, false);
      const auto native = call.gradients(GradientPrecision::kNative, plan, false);
      EXPECT_LT(distance(native.d_hidden(), exact.d_hidden()), plan == PlanKind::kTwoPass ? 4e-3 : 3e-5)
          << name_of(plan) << " from entry " << begin;
    }
  }
}

// A sample that would take nearly everything is not drawn: the gradients are then exact, with the bits of
// exact ones.
TEST(GradientPrecision, PutsBackWhereNoSampleIsDrawn) {
  OneCall call(HeadLayout::kVocabHidden, 2), all(HeadLayout::kVocabHidden, 2);
  all.backward = {.mode = BackwardMode::kSampled, .theta = 1e-12};
  for (const GradientPrecision precision : all_of<GradientPrecision>()) {
    EXPECT_TRUE(all.gradients(precision, PlanKind::kAuto).bytes() ==
                call.gradients(precision, PlanKind::kTwoPass).bytes())
        << name_of(precision);
  }
}

// The correction must not overflow if the gradients themselves do not.
TEST(GradientPrecision, StaysFiniteWhereGradientsAreHuge) {
  OneCall call;
  call.loss.reduction = Reduction::kSum;
  for (const double scale : {1e37, 1e38}) {
    call.loss.loss_scale = scale;
    for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
      const GradientOutputs got = call.gradients(GradientPrecision::kNative, plan, false);
      for (int64_t i = 0; i < got.d_hidden().rows() * got.d_hidden().cols(); ++i) {
        ASSERT_TRUE(std::isfinite(got.d_hidden().get(i / got.d_hidden().cols(), i % got.d_hidden().cols())));
      }
    }
  }
}

// The plan states the type that is multiplied and rounded.
TEST(GradientPrecision, IsWhatThePlanSays) {
  for (const std::string& backend : gemm_backends()) {
    for (const GradientPrecision precision : all_of<GradientPrecision>()) {
      for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
        ContextOptions options = {.threads = 2, .plan = kind, .row_tile = 16, .vocab_tile = 64};
        options.gemm_backend = backend, options.gradient_precision = precision;
        // More tokens than count as few.
        const Plan plan = SeededCall({.tokens = 67, .dtype = DType::kBFloat16}, {.context = options}).planned();
        SCOPED_TRACE(backend + " " + name_of(precision) + ": " + plan.describe());
        const bool native = rounds_gradients(backend);
        const bool two_terms = precision == GradientPrecision::kSplit;
        const bool rounds = native && (precision == GradientPrecision::kNative || two_terms);
        EXPECT_EQ(plan.gemm_library, backend);
        EXPECT_EQ(plan.gradient_dtype, rounds ? DType::kBFloat16 : DType::kFloat32);
        EXPECT_EQ(plan.gradient_terms, native && two_terms ? 2 : 1);
        EXPECT_EQ(plan.describe().find("bfloat16") != std::string::npos, rounds);
      }
    }
  }
}

}  // namespace gradient_precision_test
}  // namespace logitless::testing
