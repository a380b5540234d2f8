// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls with few rows have products of their own, which read the head once.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/inputs.h"
#include "support/testers.h"

namespace logitless::testing {
namespace {

constexpr int64_t kFewRows = 16;  // as Plan::gemm_library says
constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
constexpr HeadLayout kLayouts[] = {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden};

TEST(FewRows, MatchTheOracleInEveryPlan) {
  for (const DType dtype : kDTypes) {
    for (const HeadLayout layout : kLayouts) {
      for (const int64_t tokens : {1, 2, 3, 4, 7, 16, 17}) {
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
  int64_t rows = kFewRows;
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
      CrossEntropyOptions options;
      options.reduction = Reduction::kNone;
      const Context context;
      const ConstMatrix hidden = inputs.hidden_view().states;
      std::vector<int64_t> targets;
      for (int64_t row = 0; row < few; ++row) targets.push_back(row * row);
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

}  // namespace
}  // namespace logitless::testing
