// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The blocks of ggml's packings, as in GGUF files: github.com/ggml-org/llama.cpp defines them in
// ggml/src/ggml-common.h and unpacks them in gguf-py/gguf/quants.py. Also the code table of NF4, which has no
// blocks.
#pragma once

#include <bit>
#include <cstdint>

#include "logitless/packed.h"

namespace logitless::kernels {

static_assert(std::endian::native == std::endian::little, "kernels read multi-byte numbers without swapping bytes");

/// The structs below are blocks in memory, at any address. Each stores kNumbers numbers x, computed from
/// integers q. A float16 is two bytes, low byte first.
///
/// x = d · (q − 8), where q is the lower half of byte i for number i < 16, and the upper half for number i +
/// 16.
struct Q4_0Block {
  static constexpr int64_t kNumbers = 32;
  uint8_t d[2];  // float16
  uint8_t quants[16];
};

/// x = d · q
struct Q8_0Block {
  static constexpr int64_t kNumbers = 32;
  uint8_t d[2];  // float16
  int8_t quants[32];
};

/// The scales of Q4_K and Q5_K: for each j = 0 .. 7, 32 numbers have a scale s_j and an offset m_j, of 6 bits
/// each.
///   byte j       j < 4: s_j in bits 0 .. 5, bits 4 and 5 of s_(j + 4) in bits 6 and 7
///   byte 4 + j   the same for m
///   byte 8 + j   bits 0 .. 3 of s_(j + 4) in the lower half, bits 0 .. 3 of m_(j + 4) in the upper half
using PackedScales = uint8_t[12];

/// x = d · s · q − dmin · m, where q is the lower half of byte i for number i < 32 and the upper half for
/// number i + 32; each following 32 bytes hold the next 64 numbers in the same way.
struct Q4_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t d[2];     // float16
  uint8_t dmin[2];  // float16
  PackedScales scales;
  uint8_t quants[128];
};

/// Like Q4_K, but q has a fifth bit of value 16: bit j of high[i] belongs to number 32 j + i.
struct Q5_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t d[2];     // float16
  uint8_t dmin[2];  // float16
  PackedScales scales;
  uint8_t high[32];
  uint8_t quants[128];
};

/// x = d · scales[number / 16] · (q − 32). For h = 0, 1, k = 0 .. 3 and i = 0 .. 31, number 128 h + 32 k + i
/// has the lower four bits of q in low[64 h + 32 (k % 2) + i] (lower half for k < 2, else upper half), and
/// the upper two in bits 2 k and 2 k + 1 of high[32 h + i].
struct Q6_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint8_t d[2];  // float16
};

/// The code table of NF4, as in bitsandbytes (get_4bit_type in bitsandbytes/functional.py): quantiles of a
/// normal distribution, scaled to [-1, 1]. The upper half of byte i of a row is the code of number 2 i, and
/// the lower half the code of number 2 i + 1: x = scale · kNf4Numbers[code].
alignas(64) inline constexpr float kNf4Numbers[16] = {-1.0F,
                                                      -0.6961928009986877F,
                                                      -0.5250730514526367F,
                                                      -0.39491748809814453F,
                                                      -0.28444138169288635F,
                                                      -0.18477343022823334F,
                                                      -0.09105003625154495F,
                                                      0.0F,
                                                      0.07958029955625534F,
                                                      0.16093020141124725F,
                                                      0.24611230194568634F,
                                                      0.33791524171829224F,
                                                      0.44070982933044434F,
                                                      0.5626170039176941F,
                                                      0.7229568362236023F,
                                                      1.0F};

/// Returns whether Block matches block_of(packing).
template <class Block>
constexpr bool is_block_of(Packing packing) {
  return alignof(Block) == 1 && block_of(packing).numbers == Block::kNumbers &&
         block_of(packing).bytes == sizeof(Block);
}
static_assert(is_block_of<Q4_0Block>(Packing::kQ4_0) && is_block_of<Q8_0Block>(Packing::kQ8_0) &&
              is_block_of<Q4_KBlock>(Packing::kQ4K) && is_block_of<Q5_KBlock>(Packing::kQ5K) &&
              is_block_of<Q6_KBlock>(Packing::kQ6K));

}  // namespace logitless::kernels
