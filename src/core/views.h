// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Typed arithmetic on the public, untyped views. All offsets are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "logitless/tensors.h"

namespace logitless::core {

/// The type that sums have: float64 for float64, float32 for all others.
constexpr bool sums_in_double(DType dtype) { return dtype == DType::kFloat64; }

/// Stored in 16 bits: widened to float32 before any arithmetic, rounded once when stored.
constexpr bool is_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

inline const void* element(const void* data, DType dtype, int64_t index) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}
inline void* element(void* data, DType dtype, int64_t index) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

/// values[i] of any type.
double read(const ConstVector& values, int64_t i);

/// Sets [rows, cols] to zero.
void fill_zero(const Matrix& m);
void fill_zero(const Vector& v);

}  // namespace logitless::core
