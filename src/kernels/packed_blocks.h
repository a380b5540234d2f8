// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The blocks of ggml's packings, as GGUF files hold them: github.com/ggml-org/llama.cpp has them in
// ggml/src/ggml-common.h, and what a block means in gguf-py/gguf/quants.py. And the codes of NF4, which has
// no blocks.
#pragma once

#include <bit>
#include <cstdint>

#include "logitless/packed.h"

namespace logitless::kernels {

static_assert(std::endian::native == std::endian::little, "kernels read numbers of several bytes as they stand");

/// A block as it stands in memory, at any address: kNumbers numbers x of integers q. A float16 is two bytes,
/// the lower one first.
///
/// x = d · (q − 8), where q is the lower half of byte i for number i < 16, and the upper half for i + 16.
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

/// The scales of Q4_K and Q5_K: of each 32 numbers j = 0 .. 7 a scale s and an offset m, of 6 bits each.
///   byte j                  s of j in bits 0 .. 5, and bits 4, 5 of the s of j + 4 above them; j < 4
///   byte 4 + j              the same of m
///   byte 8 + j              bits 0 .. 3 of the s of j + 4, and above them those of its m
using PackedScales = uint8_t[12];

/// x = d · s · q − dmin · m, where q is the lower half of byte i for number i < 32, the upper half for
/// i + 32, and so on with the next 32 bytes.
struct Q4_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t d[2];     // float16
  uint8_t dmin[2];  // float16
  PackedScales scales;
  uint8_t quants[128];
};

/// As Q4_K, but q has a fifth bit, 16: bit j of high[i] belongs to number 32 j + i.
struct Q5_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t d[2];     // float16
  uint8_t dmin[2];  // float16
  PackedScales scales;
  uint8_t high[32];
  uint8_t quants[128];
};

/// x = d · scales[number / 16] · (q − 32). Numbers 128 h + 32 k + i for h = 0, 1, k = 0 .. 3 and i = 0 .. 31
/// have the lower four bits of q in a half of low[64 h + 32 (k % 2) + i], the lower half for k < 2, and the
/// upper two in bits 2 k and 2 k + 1 of high[32 h + i].
struct Q6_KBlock {
  static constexpr int64_t kNumbers = 256;
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint8_t d[2];  // float16
};

/// The numbers of NF4's codes, as bitsandbytes has them (get_4bit_type in bitsandbytes/functional.py):
/// quantiles of a normal distribution, scaled to [-1, 1]. Number 2 i of a row has the upper half of byte i
/// as its code, number 2 i + 1 the lower half: x = scale · kNf4Numbers[code].
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

/// Returns whether a block is what block_of() says of its packing.
template <class Block>
constexpr bool is_block_of(Packing packing) {
  return alignof(Block) == 1 && block_of(packing).numbers == Block::kNumbers &&
         block_of(packing).bytes == sizeof(Block);
}
static_assert(is_block_of<Q4_0Block>(Packing::kQ4_0) && is_block_of<Q8_0Block>(Packing::kQ8_0) &&
              is_block_of<Q4_KBlock>(Packing::kQ4K) && is_block_of<Q5_KBlock>(Packing::kQ5K) &&
              is_block_of<Q6_KBlock>(Packing::kQ6K));

}  // namespace logitless::kernels
