// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tolerances per type, and gates that a NaN never passes.
#include "io/tolerances.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace logitless::io {
namespace tolerances_test {

TEST(Tolerances, FollowTheTypesUnlessTheConfigSaysOtherwise) {
  const Tolerances single = tolerances_of(DType::kFloat32, DType::kFloat32);
  EXPECT_EQ(single.loss_atol, 1e-5);
  EXPECT_EQ(single.d_hidden_rel_l2, 1e-5);
  EXPECT_EQ(single.of_head_rel_l2, 1e-5);

  const Tolerances widened = tolerances_of(DType::kBFloat16, DType::kFloat32);
  EXPECT_EQ(widened.of_head_rel_l2, 1e-5);
  const Tolerances rounded = tolerances_of(DType::kBFloat16, DType::kBFloat16);
  EXPECT_EQ(rounded.loss_atol, 1e-5);
  EXPECT_NEAR(rounded.of_head_rel_l2, std::sqrt(1e-5 / 128), 1e-6);

  const Tolerances wide = tolerances_of(DType::kFloat64, DType::kFloat64);
  EXPECT_LT(wide.loss_atol, single.loss_atol / 1e6);
  EXPECT_LT(wide.d_hidden_rel_l2, single.d_hidden_rel_l2 / 1e6);
}

TEST(Tolerances, ADifferenceOfNaNFailsItsGate) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(make_gate("g", 1, 1).pass);
  EXPECT_TRUE(make_gate("g", 0, 0).pass);
  EXPECT_FALSE(make_gate("g", 1.0000001, 1).pass);
  EXPECT_FALSE(make_gate("g", nan, 1).pass);
  EXPECT_FALSE(make_gate("g", nan, infinity).pass);
  EXPECT_FALSE(make_gate("g", 0, nan).pass);
  EXPECT_FALSE(make_gate("g", infinity, 1).pass);
}

TEST(Tolerances, AgainstExactNumbersFollowTheTypesAndTheSize) {
  const TensorSize size{.largest = 2, .norm = 8, .count = 1 << 20};
  const ExactTolerances single = tolerances_of_exact(DType::kFloat32, DType::kFloat32, size);
  EXPECT_DOUBLE_EQ(single.max_abs, 2e-5);
  EXPECT_DOUBLE_EQ(single.rel_l2, 1e-5);
  EXPECT_LT(single.max_rel, 1e-4);
  // Half the spacing of neighbours is added if the stored type is narrower.
  const ExactTolerances rounded = tolerances_of_exact(DType::kBFloat16, DType::kBFloat16, size);
  EXPECT_DOUBLE_EQ(rounded.max_abs, 2 * (1e-5 + 0x1p-8));
  EXPECT_DOUBLE_EQ(rounded.rel_l2, 1e-5 + 0x1p-8);
  EXPECT_DOUBLE_EQ(rounded.max_rel, single.max_rel + 0x1p-8);
  EXPECT_EQ(tolerances_of_exact(DType::kBFloat16, DType::kFloat32, size).rel_l2, 1e-5);
  // So is half the spacing of float16's subnormal numbers.
  const ExactTolerances half = tolerances_of_exact(DType::kFloat16, DType::kFloat16, size);
  EXPECT_DOUBLE_EQ(half.max_abs, 2 * (1e-5 + 0x1p-11) + 0x1p-25);
  EXPECT_DOUBLE_EQ(half.rel_l2, 1e-5 + 0x1p-11 + 0x1p-25 * 1024 / 8);

  EXPECT_LT(tolerances_of_exact(DType::kFloat64, DType::kFloat64, size).max_rel, 1e-11);
  EXPECT_DOUBLE_EQ(tolerances_of_exact(DType::kFloat32, DType::kFloat32, size, 3).rel_l2, 3e-5);
  EXPECT_NEAR(growth_by_rounded_logits(DType::kFloat32, DType::kBFloat16), std::sqrt(1e5 / 128), 0.1);
}

}  // namespace tolerances_test
}  // namespace logitless::io
