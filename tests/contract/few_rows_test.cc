// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls with few rows have products of their own, which read the head once.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/adapted_head.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/testers.h"
#include "support/views.h"

namespace logitless::testing {
namespace {

// As Plan::gemm_library says: of float32, and of 16 bits.
constexpr int64_t kFewRows = 32;
constexpr int64_t kMostFewRows = 64;
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

TEST(FewRows, MatchTheOracleInEveryPlan) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int64_t tokens : {1, 2, 3, 4, 7, 8, 17, 32, 33, 64, 65}) {
        for (const PlanKind plan : {PlanKind::kOnePass, PlanKind::kTwoPass}) {
          CrossEntropyTester tester;
          tester.tokens(tokens).vocab(321).hidden(83).padding(5).dtype(dtype).layout(layout).threads(2).plan(plan);
          tester.matches_oracle();
          tester.metrics().accumulate().tiles(2, 64).matches_oracle();
        }
      }
    }
  }
}

TEST(FewRows, MatchTheOracleInEveryPrecision) {
  for (const std::string& backend : gemm_backends()) {
    for (const GradientPrecision precision :
         {GradientPrecision::kNative, GradientPrecision::kSplit, GradientPrecision::kFloat32}) {
      for (const HeadLayout layout : kLayouts) {
        CrossEntropyTester tester;
        tester.tokens(13).dtype(DType::kBFloat16).layout(layout).gemm_backend(backend).gradient_precision(precision);
        tester.gradient_dtype(DType::kFloat32).matches_oracle();
        tester.gradient_dtype(DType::kBFloat16).sink().matches_oracle();
      }
    }
  }
}

// Rows that take no part do not count; of those that do, all count that the forward had.
TEST(FewRows, AreThoseThatTakePart) {
  const auto library = [](int64_t tokens, double ignored) {
    return CrossEntropyTester().tokens(tokens).ignored(ignored).planned();
  };
  EXPECT_EQ(library(kFewRows, 0).gemm_library, "logitless");
  EXPECT_NE(library(kFewRows + 1, 0).gemm_library, "logitless");
  const Plan half = library(2 * kFewRows, 0.6);
  EXPECT_EQ(half.gemm_library == "logitless", half.active_rows <= kFewRows) << half.active_rows;
}

// Returns how many rows have products of their own.
int64_t few_rows(DType dtype) {
  int64_t rows = kMostFewRows;
  while (rows > 0 && CrossEntropyTester().tokens(rows).dtype(dtype).planned().gemm_library != "logitless") --rows;
  return rows;
}

// A token that is scored alone gets the bits that it gets among others.
TEST(FewRows, DoNotDependOnEachOther) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      const int64_t few = few_rows(dtype);
      EXPECT_GE(few, 6);
      InputSpec spec;
      spec.tokens = few;
      spec.vocab = 700;
      spec.hidden = 70;
      spec.dtype = dtype;
      spec.layout = layout;
      const Inputs inputs(spec);
      CrossEntropy options;
      options.reduction = Reduction::kNone;
      const Context context;
      const ConstMatrix hidden = inputs.hidden_view().states;
      std::vector<int64_t> targets;
      for (int64_t row = 0; row < few; ++row) targets.push_back(row * row % spec.vocab);
      const auto losses = [&](int64_t first, int64_t count) {
        const auto* data =
            static_cast<const std::byte*>(hidden.data) + first * hidden.stride * static_cast<int64_t>(size_of(dtype));
        return cross_entropy(context, ConstMatrix(data, dtype, count, hidden.cols, hidden.stride), inputs.head_view(),
                             Targets(targets.data() + first, count), options)
            .per_token_loss;
      };
      const std::vector<double> together = losses(0, few);
      for (int64_t row = 0; row < few; ++row) {
        EXPECT_EQ(losses(row, 1).at(0), together[static_cast<size_t>(row)]) << name_of(dtype) << ", row " << row;
      }
    }
  }
}

template <class Half>
Half half_of(double value);
template <>
bfloat16 half_of(double value) {
  return truncated(static_cast<float>(value));
}
template <>
float16 half_of(double value) {
  // Sixteenths up to 64 are normal numbers of at most 11 bits.
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  if (value == 0) return {0};
  const auto bits = static_cast<uint16_t>(((exponent + 14) << 10) | (static_cast<int>(fraction * 2048) & 1023));
  return {static_cast<uint16_t>(bits | (value < 0 ? 0x8000 : 0))};
}

// Holds the loss and the gradients of a head with a LoRA to float64.
template <class Half>
void check_lora(int64_t rows, DType dtype, const std::string& backend) {
  constexpr int64_t kWide = 4096, kEntries = 130, kRank = 5;
  const MatrixOf<double> weight = drawn<double>(kEntries, kWide, 71), a = drawn<double>(kRank, kWide, 72),
                         b = drawn<double>(kEntries, kRank, 73), x = drawn<double>(rows, kWide, 74, 1.0 / 64);
  std::vector<std::vector<Half>> kept;
  // Numbers that 16 bits hold, which the reference has, too.
  const auto narrow = [&](const MatrixOf<double>& of, MatrixOf<double>& exact) {
    std::vector<Half>& out = kept.emplace_back();
    exact = of;
    for (double& value : std::span(exact.data(), static_cast<size_t>(exact.size()))) {
      value = std::round(value * 16) / 16;
      out.push_back(half_of<Half>(value));
    }
    return ConstMatrix(out.data(), dtype, of.rows(), of.cols());
  };
  MatrixOf<double> w, a16, b16, x16;
  LmHead head(narrow(weight, w));
  head.lora = {narrow(a, a16), narrow(b, b16), 0.25, {}};
  const ConstMatrix states = narrow(x, x16);
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back((i * 37) % kEntries);
  const MatrixOf<double> u = 0.25 * x16 * a16.transpose();
  MatrixOf<double> g = x16 * w.transpose() + u * b16.transpose();
  double loss = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const double lse = std::log(g.row(i).array().exp().sum());
    loss += (lse - g(i, targets[static_cast<size_t>(i)])) / static_cast<double>(rows);
    g.row(i) = (g.row(i).array() - lse).exp() / static_cast<double>(rows);
    g(i, targets[static_cast<size_t>(i)]) -= 1.0 / static_cast<double>(rows);
  }
  AdaptedOutputs<float> got(rows, kEntries, kWide, kRank, 99.0F);
  Gradients views = got.views(true);
  views.d_weight = {};
  ContextOptions options;
  options.gemm_backend = backend;
  options.threads = 2;
  options.gradient_precision = GradientPrecision::kFloat32;
  const double of_call =
      cross_entropy(Context(options), HiddenStates(states), head, Targets(targets.data(), rows), {}, views).loss;
  // Logits are sums of H numbers of a few units, of which few-row kernels keep float32 sums.
  constexpr double kTolerance = 1e-4;
  EXPECT_NEAR(of_call, loss, kTolerance * loss);
  const MatrixOf<double> du = 0.25 * g * b16;
  expect_near<double>(got.d_hidden.cast<double>(), g * w + du * a16, kTolerance, "d_hidden");
  expect_near<double>(got.d_a.cast<double>(), du.transpose() * x16, kTolerance, "d_lora_a");
  expect_near<double>(got.d_b.cast<double>(), g.transpose() * u, kTolerance, "d_lora_b");
}

// Each product of a LoRA may have fewer rows than those that its scratch is measured for.
TEST(FewRows, ALoraOfSixteenBitsHasTheScratchOfItsProducts) {
  for (const std::string& backend : gemm_backends()) {
    for (const int64_t rows : {1, 8, 16, 32, 33}) {
      SCOPED_TRACE(backend + " rows " + std::to_string(rows));
      check_lora<bfloat16>(rows, DType::kBFloat16, backend);
      check_lora<float16>(rows, DType::kFloat16, backend);
    }
  }
}

}  // namespace
}  // namespace logitless::testing
