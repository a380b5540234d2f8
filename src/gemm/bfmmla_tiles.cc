// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/bfmmla_tiles.h"

#if defined(__aarch64__) && defined(__linux__)

#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <algorithm>

// Functions with this attribute run only if cpu_unit() is not null. The rest of the library is compiled
// for any CPU.
#ifdef __clang__
#define LOGITLESS_TARGET_BF16 __attribute__((target("bf16")))
#else
#define LOGITLESS_TARGET_BF16 __attribute__((target("+bf16")))
#endif

namespace logitless::gemm::tiles::bfmmla {
namespace {

constexpr int64_t kGroup = kTilesOfDepth * kTileElements;  // tiles of one depth

// Eight edges with four elements of the depth each. Each pair of edges is a tile.
struct Edges {
  uint16x8_t pair[4];
};

void store_tiles(const Edges& tiles, uint16_t* to) {
  for (int64_t i = 0; i < 4; ++i) vst1q_u16(to + i * kTileElements, tiles.pair[i]);
}

// Reorders a whole step whose elements are contiguous along the depth.
void reorder_along_depth(const uint16_t* from, int64_t stride, uint16_t* step) {
  for (int64_t i = 0; i < kPanel; i += kTileEdge, from += kTileEdge * stride, step += kTileElements) {
    for (int64_t p = 0; p < kStep; p += 2 * kTileDepth) {
      const uint64x2_t even = vreinterpretq_u64_u16(vld1q_u16(from + p));
      const uint64x2_t odd = vreinterpretq_u64_u16(vld1q_u16(from + stride + p));
      uint16_t* to = step + p / kTileDepth * kGroup;
      vst1q_u16(to, vreinterpretq_u16_u64(vzip1q_u64(even, odd)));
      vst1q_u16(to + kGroup, vreinterpretq_u16_u64(vzip2q_u64(even, odd)));
    }
  }
}

// Transposes four rows of eight edges: the result has the four elements of each edge side by side.
Edges side_by_side(const uint16_t* from, int64_t stride) {
  const uint16x8_t one = vld1q_u16(from), two = vld1q_u16(from + stride);
  const uint16x8_t three = vld1q_u16(from + 2 * stride), four = vld1q_u16(from + 3 * stride);
  const uint32x4_t low[2] = {vreinterpretq_u32_u16(vzip1q_u16(one, two)), vreinterpretq_u32_u16(vzip2q_u16(one, two))};
  const uint32x4_t high[2] = {vreinterpretq_u32_u16(vzip1q_u16(three, four)),
                              vreinterpretq_u32_u16(vzip2q_u16(three, four))};
  return {{vreinterpretq_u16_u32(vzip1q_u32(low[0], high[0])), vreinterpretq_u16_u32(vzip2q_u32(low[0], high[0])),
           vreinterpretq_u16_u32(vzip1q_u32(low[1], high[1])), vreinterpretq_u16_u32(vzip2q_u32(low[1], high[1]))}};
}

// Reorders a whole step whose elements are contiguous along C's edge.
void reorder_along_edge(const uint16_t* from, int64_t stride, uint16_t* step) {
  for (int64_t p = 0; p < kStep; p += kTileDepth, from += kTileDepth * stride, step += kGroup) {
    for (int64_t i = 0; i < kPanel; i += 8) {
      store_tiles(side_by_side(from + i, stride), step + i / kTileEdge * kTileElements);
    }
  }
}

void reorder(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t p = 0; p < depth; p += kStep, panel += kStepElements) {
    const uint16_t* from = view.data + p * view.depth;
    const int64_t elements = std::min(kStep, depth - p);
    if (edges < kPanel || elements < kStep) {
      uint16_t whole[kStepElements] = {};
      for (int64_t i = 0; i < edges; ++i) {
        for (int64_t q = 0; q < elements; ++q) whole[i * kStep + q] = from[i * view.edge + q * view.depth];
      }
      reorder_along_depth(whole, kStep, panel);
    } else if (view.depth == 1) {
      reorder_along_depth(from, view.edge, panel);
    } else {
      reorder_along_edge(from, view.depth, panel);
    }
  }
}

// Four tiles of a pair of C's rows. A tile has two elements of the first row, then two of the second.
struct PairOfRows {
  float32x4_t tile[4];
};

// 8 x 8 elements of C: 16 of the CPU's 32 registers.
struct Block {
  PairOfRows rows[4];

  void load(const float* c, int64_t ldc) {
    for (int64_t i = 0; i < 4; ++i) {
      const float* first = c + kTileEdge * i * ldc;
      const float* second = first + ldc;
      for (int64_t j = 0; j < 4; ++j) {
        rows[i].tile[j] = vcombine_f32(vld1_f32(first + kTileEdge * j), vld1_f32(second + kTileEdge * j));
      }
    }
  }
  void store(float* c, int64_t ldc) const {
    for (int64_t i = 0; i < 4; ++i) {
      float* first = c + kTileEdge * i * ldc;
      float* second = first + ldc;
      for (int64_t j = 0; j < 4; ++j) {
        vst1_f32(first + kTileEdge * j, vget_low_f32(rows[i].tile[j]));
        vst1_f32(second + kTileEdge * j, vget_high_f32(rows[i].tile[j]));
      }
    }
  }
};

LOGITLESS_TARGET_BF16 inline void add_products(float32x4_t& c, uint16x8_t a, uint16x8_t b) {
  __asm__("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(c) : "w"(a), "w"(b));
}

LOGITLESS_TARGET_BF16 void multiply_block(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc,
                                          bool accumulate) {
  Block block = {};
  if (accumulate) block.load(c, ldc);
  for (int64_t group = 0; group < steps * (kStep / kTileDepth); ++group, a += kGroup, b += kGroup) {
    uint16x8_t columns[4];
    for (int64_t j = 0; j < 4; ++j) columns[j] = vld1q_u16(b + j * kTileElements);
    for (int64_t i = 0; i < 4; ++i) {
      const uint16x8_t row = vld1q_u16(a + i * kTileElements);
      for (int64_t j = 0; j < 4; ++j) add_products(block.rows[i].tile[j], row, columns[j]);
    }
  }
  block.store(c, ldc);
}

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  constexpr int64_t kEdge = 8, kTiles = kEdge / kTileEdge * kTileElements;
  for (int64_t j = 0; j < kPanel / kEdge; ++j) {
    for (int64_t i = 0; i < kPanel / kEdge; ++i) {
      multiply_block(a + i * kTiles, b + j * kTiles, steps, c + i * kEdge * ldc + j * kEdge, ldc, accumulate);
    }
  }
}

}  // namespace

const TileUnit* cpu_unit() {
  static constexpr TileUnit unit = {false, reorder, reorder, nullptr, nullptr, multiply};
  return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0 ? &unit : nullptr;
}

}  // namespace logitless::gemm::tiles::bfmmla

#else

namespace logitless::gemm::tiles::bfmmla {

const TileUnit* cpu_unit() { return nullptr; }

}  // namespace logitless::gemm::tiles::bfmmla

#endif  // Arm Linux
