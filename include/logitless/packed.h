// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Packed weights of a head: integers with scales, bitsandbytes' NF4, and the formats of GGUF files. They
/// unpack to float32, bit for bit as in the format's own project.
#pragma once

#include <array>
#include <cstdint>

#include "logitless/names.h"

namespace logitless {

/// How the numbers of a row are packed. Formats with q in their name are GGUF's; the blocks of a row follow
/// one another.
enum class Packing {
  kInt8,  ///< 8-bit integers, each multiplied by the scale of its group: LmHead::scales
  kQ8_0,  ///< blocks of 32 numbers
  kQ4_0,  ///< blocks of 32 numbers
  kQ4K,   ///< blocks of 256 numbers
  kQ5K,   ///< blocks of 256 numbers
  kQ6K,   ///< blocks of 256 numbers
  /// 4-bit codes of bitsandbytes' NF4, two per byte, the first in the upper half. A number is the table entry
  /// of its code, multiplied by the scale of its group (absmax): LmHead::scales.
  kNf4,
};

/// The names of Packing.
template <>
inline constexpr std::array kNamesOf<Packing> = {"int8", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "nf4"};

/// The unit in which a row is packed: `numbers` numbers in `bytes` bytes.
struct PackedBlock {
  int64_t numbers = 1;  ///< numbers of a row per block
  int64_t bytes = 1;    ///< bytes per block
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

/// Returns whether the scales are stored in LmHead::scales, separately from the numbers.
constexpr bool has_scales_apart(Packing packing) { return packing == Packing::kInt8 || packing == Packing::kNf4; }

}  // namespace logitless
