// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Typed access to untyped memory. All offsets are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/matrices.h"

namespace logitless::core {

/// Returns whether sums are float64: yes for float64, no (float32) for all other types.
constexpr bool sums_in_double(DType dtype) { return dtype == DType::kFloat64; }

/// Returns whether elements of this type are narrower than their sums: they are widened before any
/// arithmetic, and rounded once when stored.
template <class Sum>
constexpr bool is_narrow(DType dtype) {
  return dtype != DTypeOf<Sum>::value;
}

inline const void* element(const void* data, DType dtype, int64_t index) {
  return static_cast<const std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}
inline void* element(void* data, DType dtype, int64_t index) {
  return static_cast<std::byte*>(data) + index * static_cast<int64_t>(size_of(dtype));
}

/// Returns the matrix with a stride that a BLAS accepts; with fewer than two rows a caller's
/// stride may be anything.
template <class AnyMatrix>
AnyMatrix with_used_stride(AnyMatrix matrix) {
  if (matrix.rows < 2) matrix.stride = matrix.cols;
  return matrix;
}

/// Returns values[i] of any type.
double read(const ConstVector& values, int64_t i);

/// Sets [rows, cols] to zero.
void fill_zero(const Matrix& m);
void fill_zero(const Vector& v);

}  // namespace logitless::core
