// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "core/matrices.h"

namespace logitless::core {

inline double wide(double x) { return x; }
inline double wide(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

/// Returns Σ values[i]², summed in float64.
template <class T>
double sum_of_squares(const T* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += wide(values[i]) * wide(values[i]);
  return sum;
}

}  // namespace logitless::core
