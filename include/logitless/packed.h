// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Heads whose numbers are packed: integers with scales, bitsandbytes' NF4, and what GGUF files hold heads
/// in. They are read as the float32 numbers that the format's own project unpacks, to the bit.
#pragma once

#include <array>
#include <cstdint>

#include "logitless/names.h"

namespace logitless {

/// How the numbers of a row are packed. Those whose names begin with q are the formats of GGUF, whose blocks
/// of a row follow one another.
enum class Packing {
  kInt8,  ///< 8-bit integers, each multiplied with the scale of its group: LmHead::scales
  kQ8_0,  ///< blocks of 32 numbers
  kQ4_0,  ///< blocks of 32 numbers
  kQ4K,   ///< blocks of 256 numbers
  kQ5K,   ///< blocks of 256 numbers
  kQ6K,   ///< blocks of 256 numbers
  /// 4-bit codes of bitsandbytes' NF4, two a byte and the first one in its upper half. A number is what the
  /// format's table has for its code, multiplied with the scale of its group (absmax): LmHead::scales.
  kNf4,
};

/// The names of packings.
template <>
inline constexpr std::array kNamesOf<Packing> = {"int8", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "nf4"};

/// A row is cut into blocks of so many numbers, each of which takes so many bytes.
struct PackedBlock {
  int64_t numbers = 1;  ///< of a row
  int64_t bytes = 1;    ///< that they take
};

/// Returns the block of a packing.
constexpr PackedBlock block_of(Packing packing) {
  switch (packing) {
    case Packing::kInt8:
      return {1, 1};
    case Packing::kQ8_0:
      return {32, 34};
    case Packing::kQ4_0:
      return {32, 18};
    case Packing::kQ4K:
      return {256, 144};
    case Packing::kQ5K:
      return {256, 176};
    case Packing::kQ6K:
      return {256, 210};
    case Packing::kNf4:
      return {2, 1};
  }
  return {};
}

/// Tells whether the scales stand beside the numbers, in LmHead::scales, and not among them.
constexpr bool has_scales_apart(Packing packing) { return packing == Packing::kInt8 || packing == Packing::kNf4; }

}  // namespace logitless
