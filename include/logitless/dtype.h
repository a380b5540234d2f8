// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Element types of the tensors a caller hands over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitless {

/// The upper half of an IEEE float32. Only storage: arithmetic happens in float32.
struct bfloat16 {
  uint16_t bits = 0;
};

/// float32 and bfloat16 tensors are computed with float32 sums, float64 tensors with float64 sums.
enum class DType { kFloat32, kBFloat16, kFloat64 };

constexpr size_t size_of(DType dtype) { return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2; }

/// "float32", "bfloat16" or "float64".
constexpr const char* name_of(DType dtype) {
  return dtype == DType::kFloat64 ? "float64" : dtype == DType::kFloat32 ? "float32" : "bfloat16";
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::kBFloat16;
};

}  // namespace logitless
