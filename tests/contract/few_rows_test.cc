// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Calls with few rows have their own products, which read the head only once.
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "logitless/cross_entropy.h"
#include "support/calls.h"
#include "support/inputs.h"
#include "support/views.h"

namespace logitless::testing {
namespace few_rows_test {

// As reported in Plan::gemm_library: for float32, and for 16-bit types.
constexpr int64_t kFewRows = 32;
constexpr int64_t kMostFewRows = 64;

// Ignored rows do not count as rows. backward() counts all rows that forward() had.
TEST(FewRows, AreThoseThatTakePart) {
  const auto library = [](int64_t tokens, double ignored) {
    return SeededCall({.tokens = tokens, .ignored = ignored}).planned();
  };
  EXPECT_EQ(library(kFewRows, 0).gemm_library, "logitless");
  EXPECT_NE(library(kFewRows + 1, 0).gemm_library, "logitless");
  const Plan half = library(2 * kFewRows, 0.6);
  EXPECT_EQ(half.gemm_library == "logitless", half.active_rows <= kFewRows) << half.active_rows;
}

// A token gets the same bits alone as among others.
TEST(FewRows, DoNotDependOnEachOther) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const HeadLayout layout : {HeadLayout::kHiddenVocab, HeadLayout::kVocabHidden}) {
      int64_t few = kMostFewRows;
      while (SeededCall({.tokens = few, .dtype = dtype}).planned().gemm_library != "logitless") ASSERT_GE(--few, 6);
      InputSpec spec;
      spec.tokens = few, spec.vocab = 700, spec.hidden = 70;
      spec.dtype = dtype, spec.layout = layout;
      const Inputs inputs(spec);
      const CrossEntropy options = {.reduction = Reduction::kNone};
      const ConstMatrix hidden = inputs.hidden_view().states;
      const auto losses = [&](int64_t first, int64_t count) {
        const auto* data =
            static_cast<const std::byte*>(hidden.data) + first * hidden.stride * static_cast<int64_t>(size_of(dtype));
        return cross_entropy(Context(), ConstMatrix(data, dtype, count, hidden.cols, hidden.stride), inputs.head_view(),
                             Targets(inputs.targets.data() + first, count), options)
            .per_token_loss;
      };
      const std::vector<double> together = losses(0, few);
      for (int64_t row = 0; row < few; ++row) {
        EXPECT_EQ(losses(row, 1).at(0), together[static_cast<size_t>(row)]) << name_of(dtype) << ", row " << row;
      }
    }
  }
}

}  // namespace few_rows_test
}  // namespace logitless::testing
