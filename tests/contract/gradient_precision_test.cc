// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// dL/dlogits in bfloat16, in two terms of it and in float32: each within the bound of its rounding, in every
// plan, and each as the plan says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/inputs.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr GradientPrecision kPrecisions[] = {GradientPrecision::kNative, GradientPrecision::kSplit,
                                             GradientPrecision::kFloat32};
constexpr PlanKind kPlans[] = {PlanKind::kAuto, PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense};

bool rounds_gradients(const std::string& backend) {
  return backend == "amx" || backend == "amx_float32" || backend == "onednn";
}

bool multiplies_bfloat16() {
  const std::vector<std::string> names = gemm_backends();
  return std::any_of(names.begin(), names.end(), rounds_gradients);
}

// Returns the best backend that rounds gradients, where there is one: "auto" takes it only where it is the
// faster.
std::string bfloat16_backend() {
  const std::vector<std::string> names = gemm_backends();
  const auto found = std::find_if(names.begin(), names.end(), rounds_gradients);
  return found == names.end() ? "auto" : *found;
}

CrossEntropyTester small() {
  return CrossEntropyTester()
      .tiles(16, 64)
      .threads(2)
      .gemm_backend(bfloat16_backend())
      .dtype(DType::kBFloat16)
      .gradient_dtype(DType::kFloat32);
}

TEST(GradientPrecision, MatchesTheOracleInEveryPlan) {
  for (const GradientPrecision precision : kPrecisions) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      for (const double softcap : {0.0, 20.0}) {
        for (const PlanKind plan : kPlans) {
          CrossEntropyTester tester = small().gradient_precision(precision).layout(layout).softcap(softcap).plan(plan);
          // Plan dense multiplies every row, and the states of ignored ones are NaN here.
          tester.ignored(plan == PlanKind::kDense ? 0 : 0.2).matches_oracle();
          tester.metrics().label_smoothing(0.1).accumulate().matches_oracle();
        }
      }
    }
  }
}

TEST(GradientPrecision, OutputsOfEveryType) {
  for (const GradientPrecision precision : kPrecisions) {
    for (const DType output : {DType::kBFloat16, DType::kFloat32}) {
      small().gradient_precision(precision).gradient_dtype(output).matches_oracle();
      small().gradient_precision(precision).gradient_dtype(output).sink().matches_oracle();
    }
  }
}

class OneCall {
 public:
  OneCall() : inputs_(spec()) {}

  HostTensor d_hidden(GradientPrecision precision, PlanKind plan) {
    GradientOutputs outputs(inputs_, {});
    ContextOptions options;
    options.gemm_backend = bfloat16_backend();
    options.gradient_precision = precision;
    options.plan = plan;
    cross_entropy(Context(options), inputs_.hidden_view(), inputs_.head_view(), inputs_.targets_view(), {},
                  outputs.gradients());
    return outputs.all_d_hidden();
  }

 private:
  static InputSpec spec() {
    InputSpec spec;
    spec.dtype = DType::kBFloat16;
    spec.tokens = 60;
    spec.vocab = 500;
    spec.hidden = 64;
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

// A precision that was ignored would pass every bound of a wider one: here each loses what it rounds, and no
// more.
TEST(GradientPrecision, LosesWhatItRounds) {
  if (!multiplies_bfloat16()) GTEST_SKIP() << "no backend of this machine multiplies bfloat16";
  OneCall call;
  for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
    const HostTensor exact = call.d_hidden(GradientPrecision::kFloat32, plan);
    const double native = distance(call.d_hidden(GradientPrecision::kNative, plan), exact);
    EXPECT_GT(native, 0x1p-13);
    EXPECT_LT(native, 0x1p-8);
    const double split = distance(call.d_hidden(GradientPrecision::kSplit, plan), exact);
    EXPECT_GT(split, 0x1p-23);
    EXPECT_LT(split, 0x1p-17);
  }
}

// The plan says what is multiplied and rounded.
TEST(GradientPrecision, IsWhatThePlanSays) {
  for (const std::string& backend : gemm_backends()) {
    for (const GradientPrecision precision : kPrecisions) {
      for (const PlanKind kind : {PlanKind::kOnePass, PlanKind::kTwoPass, PlanKind::kDense}) {
        const Plan plan = small().gemm_backend(backend).gradient_precision(precision).plan(kind).planned();
        SCOPED_TRACE(backend + " " + name_of(precision) + ": " + plan.describe());
        const bool native = rounds_gradients(backend);
        const bool two_terms = precision == GradientPrecision::kSplit && kind != PlanKind::kDense;
        const bool rounds = native && (precision == GradientPrecision::kNative || two_terms);
        EXPECT_EQ(plan.gemm_library, backend);
        EXPECT_EQ(plan.gradient_dtype, rounds ? DType::kBFloat16 : DType::kFloat32);
        EXPECT_EQ(plan.gradient_terms, native && two_terms ? 2 : 1);
        EXPECT_EQ(plan.describe().find("bfloat16") != std::string::npos, rounds);
      }
    }
  }
  const Plan single = small().dtype(DType::kFloat32).planned();
  EXPECT_EQ(single.gemm_library, "openblas");
  EXPECT_EQ(single.gradient_dtype, DType::kFloat32);
}

}  // namespace
}  // namespace logitless::testing
