// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The element types of tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "logitless/names.h"

namespace logitless {

/// The upper half of an IEEE float32. Storage only: arithmetic is done in float32.
struct bfloat16 {
  uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of fraction
};

/// IEEE binary16: 11 bits of precision, subnormals from 2^-24, largest value 65504. Storage only: arithmetic
/// is done in float32.
struct float16 {
  uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of fraction
};

/// The type of an element. float32, bfloat16 and float16 tensors are summed in float32, float64 tensors in
/// float64. Token ids are int32 or int64, masks and packed weights uint8.
enum class DType { kFloat32, kBFloat16, kFloat64, kFloat16, kInt32, kInt64, kUInt8 };

/// The floating-point types.
inline constexpr std::array kFloatTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kFloat16};

/// Returns whether `dtype` is one of kFloatTypes.
constexpr bool is_float(DType dtype) { return dtype <= DType::kFloat16; }

/// Returns the bytes of one element.
constexpr size_t size_of(DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kInt32) return 4;
  if (dtype == DType::kFloat64 || dtype == DType::kInt64) return 8;
  return dtype == DType::kUInt8 ? 1 : 2;
}

/// The names of DType.
template <>
inline constexpr std::array kNamesOf<DType> = {"float32", "bfloat16", "float64", "float16", "int32", "int64", "uint8"};

/// DTypeOf<T>::value is the DType of the C++ type T.
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
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};

}  // namespace logitless
