// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A float32 as the sum of three bfloat16 numbers, so that units which multiply bfloat16 alone can multiply
// float32: x = x1 + x2 + x3, each the rounding to nearest even of what the ones before it leave.
//
// Let 2^e <= |x| < 2^(e+1). Then |x - x1| <= 2^(e-8), |x2| <= 2^(e-8) and |x3| <= 2^(e-17), and the sum is x
// itself: x has 24 bits, a term takes 8, and a rest that is rounded to nearest needs a bit less than it has
// digits. Of a · b the products 1·1, 1·2, 2·1, 1·3, 2·2 and 3·1 are made; 2·3, 3·2 and 3·3, which are left
// out, are at most 2^-24 (1 + 2^-10) |a b|: half an ulp of a float32, or one of its roundings.
//
// Two terms leave at most 2^-17 |x| of x, and the products 1·1, 1·2 and 2·1 are made of a · b: 2·2 and what
// is left of a and b, which are left out, are at most 2^-15 (1 + 2^-18) |a b|.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace logitless::gemm {

inline constexpr int64_t kTerms = 3;

inline float widened_bfloat16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

/// Rounds to nearest even, and to a zero of x's sign where |x| < 2^-126: units take such numbers as zeros.
/// The bits of |x| are below kFirstUnrounded.
inline uint16_t rounded_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000) == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Magnitudes from these bits on would round to infinity, or are infinity or NaN.
inline constexpr uint32_t kFirstUnrounded = 0x7f7f8000;

/// Returns the terms of x. Their sum is x
///   - but for terms below 2^-126, which are zeros: the sum is off by less than 2^-126 then, and exact again
///     where |x| >= 2^-103;
///   - up to the largest float32: where x1 would be infinity, it is x cut off, and the bounds on |x2| and |x3|
///     are twice as large;
///   - also where x is infinite or NaN: x1 is x then, and the others are zeros.
inline std::array<uint16_t, kTerms> terms_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40), 0, 0};  // quiet
  if (magnitude == 0x7f800000) return {static_cast<uint16_t>(bits >> 16), 0, 0};
  const uint16_t first = magnitude < kFirstUnrounded ? rounded_bfloat16(x) : static_cast<uint16_t>(bits >> 16);
  const float rest = x - widened_bfloat16(first);
  const uint16_t second = rounded_bfloat16(rest);
  return {first, second, rounded_bfloat16(rest - widened_bfloat16(second))};
}

}  // namespace logitless::gemm
