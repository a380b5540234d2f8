// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "dense/large_gemm.h"
#include "timing/statistics.h"

namespace logitless::timing {
namespace timing_test {

TEST(Statistics, MediansAndQuartilesLieBetweenNeighbours) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({std::numeric_limits<double>::infinity(), 1, 2}), 2);
  EXPECT_EQ(quantile({5, 1}, 0), 1);
  EXPECT_EQ(quantile({5, 1}, 1), 5);
  EXPECT_EQ(quantile({1, 2, 3, 4, 5}, 0.25), 2);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.75), 3.25);
  EXPECT_EQ(spread({7}), 0);
  EXPECT_EQ(spread({1, 9, 5, 3, 7}), 2);
}

TEST(LargeGemm, RunsInEveryType) {
  ContextOptions options;
  options.threads = 1;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    dense::LargeGemm gemm(Context(options), dtype);
    gemm.run();
    EXPECT_EQ(gemm.flops(), 2.0 * 1024 * 1024 * 2048);
  }
}

}  // namespace timing_test
}  // namespace logitless::timing
