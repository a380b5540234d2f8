// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The unpacking kernels as readable scalar code. Tests compare the SIMD kernels with these.
#include "kernels/packed_blocks.h"
#include "kernels/plain_tile.h"

namespace logitless::kernels {
namespace {

float widened(const uint8_t (&half)[2]) {
  return kernels::widened(float16{static_cast<uint16_t>(half[0] | half[1] << 8)});
}

// Returns the lower four bits of a byte, or the upper four.
int half_of(uint8_t byte, int64_t upper) { return upper ? byte >> 4 : byte & 15; }

float number(const Q4_0Block& block, int64_t i) {
  const int q = half_of(block.quants[i % 16], i / 16);
  return widened(block.d) * static_cast<float>(q - 8);
}

float number(const Q8_0Block& block, int64_t i) { return widened(block.d) * static_cast<float>(block.quants[i]); }

// Returns the scale s_j, or with `from` = 4 the offset m_j.
int scale_of(const PackedScales& scales, int64_t j, int64_t from) {
  if (j < 4) return scales[from + j] & 63;
  return half_of(scales[8 + j - 4], from) | scales[from + j - 4] >> 6 << 4;
}

template <class Block>
float scaled(const Block& block, int64_t j, int q) {
  const float scale = widened(block.d) * static_cast<float>(scale_of(block.scales, j, 0));
  const float offset = widened(block.dmin) * static_cast<float>(scale_of(block.scales, j, 4));
  return scale * static_cast<float>(q) - offset;
}

float number(const Q4_KBlock& block, int64_t i) {
  const int64_t j = i / 32;
  return scaled(block, j, half_of(block.quants[j / 2 * 32 + i % 32], j % 2));
}

float number(const Q5_KBlock& block, int64_t i) {
  const int64_t j = i / 32;
  const int fifth = block.high[i % 32] >> j & 1;
  return scaled(block, j, half_of(block.quants[j / 2 * 32 + i % 32], j % 2) | fifth << 4);
}

float number(const Q6_KBlock& block, int64_t i) {
  const int64_t half = i / 128, k = i % 128 / 32;
  const int low = half_of(block.low[64 * half + 32 * (k % 2) + i % 32], k / 2);
  const int high = block.high[32 * half + i % 32] >> (2 * k) & 3;
  const int8_t of_sixteen = block.scales[i / 16];
  const float scale = widened(block.d) * static_cast<float>(of_sixteen);
  return scale * static_cast<float>((low | high << 4) - 32);
}

template <class Block>
void unpack(const PackedRow& row, int64_t first, int64_t count, float* to) {
  const auto* blocks = reinterpret_cast<const Block*>(row.bytes);
  for (int64_t i = first; i < first + count; ++i) {
    to[i - first] = number(blocks[i / Block::kNumbers], i % Block::kNumbers);
  }
}

float int8_number(const PackedRow& row, int64_t i, float scale) {
  return scale * static_cast<float>(static_cast<int8_t>(row.bytes[i]));
}

void int8_row(const PackedRow& row, int64_t first, int64_t count, float* to) {
  for (int64_t i = first; i < first + count; ++i) to[i - first] = int8_number(row, i, row.scales[0]);
}

void int8_group(const PackedRow& row, int64_t first, int64_t count, float* to) {
  for (int64_t i = first; i < first + count; ++i) to[i - first] = int8_number(row, i, row.scales[i / row.group]);
}

float nf4_number(const PackedRow& row, int64_t i) {
  const float scale = row.scales[row.group > 0 ? i / row.group : 0];
  return scale * kNf4Numbers[half_of(row.bytes[i / 2], 1 - i % 2)];
}

void nf4(const PackedRow& row, int64_t first, int64_t count, float* to) {
  for (int64_t i = first; i < first + count; ++i) to[i - first] = nf4_number(row, i);
}

}  // namespace

UnpackKernels plain_unpack_kernels() {
  return {int8_row,          int8_group,        unpack<Q4_0Block>, unpack<Q8_0Block>,
          unpack<Q4_KBlock>, unpack<Q5_KBlock>, unpack<Q6_KBlock>, nf4};
}

}  // namespace logitless::kernels
