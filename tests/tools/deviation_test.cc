// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The measurements of a gradient check: every figure on numbers worked out by hand, and NaN in any position.
#include "oracle/deviation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/host_tensor.h"

namespace logitless::testing {
namespace deviation_test {

using oracle::Deviation;
using oracle::MatrixXd;

oracle::StoredMatrix stored(const HostTensor& tensor) {
  const ConstMatrix view = tensor.view();
  return {view.data, view.dtype, view.stride, 1};
}

HostTensor copy_of(const MatrixXd& values, DType dtype, int64_t padding = 0) {
  HostTensor tensor(dtype, values.rows(), values.cols(), padding);
  for (int64_t r = 0; r < values.rows(); ++r) {
    for (int64_t c = 0; c < values.cols(); ++c) tensor.set(r, c, values(r, c));
  }
  return tensor;
}

Deviation of(const MatrixXd& want, const HostTensor& got) {
  Deviation deviation;
  deviation.add(want, stored(got));
  return deviation;
}

TEST(Deviation, CatchesOnePerturbedElement) {
  MatrixXd want = MatrixXd::Constant(30, 40, 2);
  want(0, 0) = -4;
  HostTensor got = copy_of(want, DType::kFloat32);
  got.set(17, 23, 2.25);
  const Deviation deviation = of(want, got);
  EXPECT_EQ(deviation.max_abs(), 0.25);
  EXPECT_EQ(deviation.max_rel(), 0.125);
  EXPECT_DOUBLE_EQ(deviation.rel_l2(), 0.25 / std::sqrt(1199 * 4 + 16));
}

TEST(Deviation, SumsOverTiles) {
  MatrixXd want(2, 5);
  want << 1, 2, 3, 4, 5, 6, 7, 8, 9, 10;
  MatrixXd off = want;
  off(0, 1) += 1;
  off(1, 4) -= 3;
  const HostTensor got = copy_of(off, DType::kFloat64, 1);
  const auto tile = [&](int64_t first, int64_t cols) {
    oracle::StoredMatrix part = stored(got);
    part.data = static_cast<const double*>(part.data) + first;
    return std::pair(MatrixXd(want.middleCols(first, cols)), part);
  };
  Deviation deviation;
  for (const auto& [values, part] : {tile(0, 2), tile(2, 1), tile(3, 2)}) deviation.add(values, part);
  EXPECT_EQ(deviation.max_abs(), 3);
  EXPECT_EQ(deviation.max_rel(), 0.5);
  EXPECT_DOUBLE_EQ(deviation.rel_l2(), std::sqrt(10.0 / 385));
}

TEST(Deviation, RelativeErrorsBeginAtTheSmallestNormalNumber) {
  const std::pair<DType, double> types[] = {{DType::kFloat16, 0x1p-14},
                                            {DType::kBFloat16, 0x1p-126},
                                            {DType::kFloat32, 0x1p-126},
                                            {DType::kFloat64, 0x1p-1022}};
  for (const auto& [dtype, smallest] : types) {
    SCOPED_TRACE(name_of(dtype));
    const HostTensor zero = copy_of(MatrixXd::Zero(1, 1), dtype);
    EXPECT_EQ(of(MatrixXd::Constant(1, 1, smallest), zero).max_rel(), 1);
    const Deviation below = of(MatrixXd::Constant(1, 1, smallest / 2), zero);
    EXPECT_EQ(below.max_rel(), 0);
    EXPECT_EQ(below.max_abs(), smallest / 2);
  }
}

TEST(Deviation, NaNAndInfinityAreNeverLost) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  // Before larger and after smaller numbers, on either side, and on both sides.
  for (const int64_t at : {0, 1, 2}) {
    for (const auto& [wanted, got] :
         {std::pair(kNaN, 1.0), {1.0, kNaN}, {0.0, kNaN}, {kNaN, kNaN}, {kInfinity, kInfinity}}) {
      MatrixXd want(1, 3), values(1, 3);
      want << 5, 6, 7;
      values = want * 2;
      want(0, at) = wanted;
      values(0, at) = got;
      const Deviation deviation = of(want, copy_of(values, DType::kFloat32));
      EXPECT_TRUE(std::isnan(deviation.max_abs())) << at << ": " << wanted << ", " << got;
      EXPECT_TRUE(std::isnan(deviation.max_rel())) << at << ": " << wanted << ", " << got;
      EXPECT_TRUE(std::isnan(deviation.rel_l2())) << at << ": " << wanted << ", " << got;
    }
  }
  EXPECT_EQ(of(MatrixXd::Ones(1, 1), copy_of(MatrixXd::Constant(1, 1, kInfinity), DType::kFloat32)).max_abs(),
            kInfinity);
  EXPECT_EQ(of(MatrixXd::Zero(1, 1), copy_of(MatrixXd::Ones(1, 1), DType::kFloat32)).rel_l2(), kInfinity);
}

}  // namespace deviation_test
}  // namespace logitless::testing
