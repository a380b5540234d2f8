// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/views.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace logitless::core {

double read(const ConstVector& values, int64_t i) {
  switch (values.dtype) {
    case DType::kFloat64:
      return static_cast<const double*>(values.data)[i];
    case DType::kFloat32:
      return static_cast<const float*>(values.data)[i];
    case DType::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const bfloat16*>(values.data)[i].bits) << 16);
    case DType::kFloat16: {
      const uint32_t bits = static_cast<const float16*>(values.data)[i].bits;
      const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
      double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      if (exponent == 31) {
        value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
      }
      return bits >> 15 ? -value : value;
    }
    default:
      return 0;
  }
}

void fill_zero(const Matrix& m) {
  for (int64_t row = 0; row < m.rows; ++row) {
    std::memset(element(m.data, m.dtype, row * m.stride), 0, static_cast<size_t>(m.cols) * size_of(m.dtype));
  }
}

void fill_zero(const Vector& v) {
  if (v.size > 0) std::memset(v.data, 0, static_cast<size_t>(v.size) * size_of(v.dtype));
}

}  // namespace logitless::core
