// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/amx_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "gemm/amx_kernels-inl.h"
#include "gemm/avx512_bfloat16-inl.h"
#include "gemm/cpu_bfloat16.h"

namespace logitless::gemm::tiles::amx {
namespace {

bool cpu_has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmx = 1u << 22 | 1u << 24;  // BF16, TILE
  return (d & kAmx) == kAmx && system_saves(3u << 17);
}

// Linux gives a process the 8 KiB of tile data only on request (Documentation/arch/x86/xstate.rst).
bool system_permits_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

/// 16 x 16 pairs.
struct Pairs {
  __m512i row[kTileRows];
};

LOGITLESS_TARGET_AVX512 inline void transpose(Pairs& pairs) {
  __m512i* r = pairs.row;
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// Loads 16 rows of 32 elements, `stride` apart. Only `rows` rows and `columns` elements of each exist; the
// others are zeros.
LOGITLESS_TARGET_AVX512 inline void load_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns,
                                              Pairs& out) {
  if (rows >= kTileRows && columns >= kStep) {
    for (int64_t i = 0; i < kTileRows; ++i) out.row[i] = _mm512_loadu_si512(from + i * stride);
    return;
  }
  const __mmask32 existing = first(std::max<int64_t>(columns, 0));
  for (int64_t i = 0; i < kTileRows; ++i) {
    out.row[i] = i < rows ? _mm512_maskz_loadu_epi16(existing, from + i * stride) : _mm512_setzero_si512();
  }
}

LOGITLESS_TARGET_AVX512 inline void store_rows(const Pairs& pairs, uint16_t* to) {
  for (int64_t i = 0; i < kTileRows; ++i) _mm512_store_si512(to + i * kStep, pairs.row[i]);
}

// Loads a step of `depth` rows of 32 elements, `stride` apart, of which `edges` exist, and interleaves
// rows 2p and 2p + 1: row p of `low` has the pairs of elements 0 to 15, and row p of `high` the pairs of
// elements 16 to 31.
LOGITLESS_TARGET_AVX512 inline void load_pairs(const uint16_t* from, int64_t stride, int64_t edges, int64_t depth,
                                               Pairs& low, Pairs& high) {
  const __mmask32 existing = first(edges);
  for (int64_t p = 0; p < kTileRows; ++p) {
    const uint16_t* row = from + 2 * p * stride;
    const __m512i even = _mm512_maskz_loadu_epi16(2 * p < depth ? existing : 0, row);
    const __m512i odd = _mm512_maskz_loadu_epi16(2 * p + 1 < depth ? existing : 0, row + stride);
    low.row[p] = pairs(even, odd, 0);
    high.row[p] = pairs(even, odd, 16);
  }
}

// Reorders a matrix whose elements are contiguous along the depth.
template <bool kTranspose>
LOGITLESS_TARGET_AVX512 void reorder_along_depth(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t p = 0; p < depth; p += kStep) {
    for (int64_t i = 0; i < kPanel; i += kTileRows, panel += kTileElements) {
      Pairs tile;
      load_rows(view.data + i * view.edge + p, view.edge, edges - i, depth - p, tile);
      if constexpr (kTranspose) transpose(tile);
      store_rows(tile, panel);
    }
  }
}

// Reorders a matrix whose elements are contiguous along C's edge.
template <bool kTranspose>
LOGITLESS_TARGET_AVX512 void reorder_along_edge(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t p = 0; p < depth; p += kStep, panel += kStepElements) {
    Pairs low, high;
    load_pairs(view.data + p * view.depth, view.depth, edges, depth - p, low, high);
    if constexpr (kTranspose) {
      transpose(low);
      transpose(high);
    }
    store_rows(low, panel);
    store_rows(high, panel + kTileElements);
  }
}

void reorder_a(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  if (view.depth == 1) return reorder_along_depth<false>(view, edges, depth, panel);
  reorder_along_edge<true>(view, edges, depth, panel);
}

void reorder_b(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  if (view.depth == 1) return reorder_along_depth<true>(view, edges, depth, panel);
  reorder_along_edge<false>(view, edges, depth, panel);
}

// The tiles are registers of the CPU. The compiler must assume that an instruction reads or writes any
// memory.
struct CpuTiles {
  template <int kTile>
  void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "n"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "n"(kTile) : "memory");
  }
  template <int kTile>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "n"(kTile));
  }
  template <int kC, int kA, int kB>
  void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "n"(kC), "n"(kA), "n"(kB));
  }
};

void begin() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  std::fill_n(shapes.row_bytes, 8, uint16_t{kRowBytes});
  std::fill_n(shapes.rows, 8, uint8_t{kTileRows});
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

void end() { __asm__ volatile("tilerelease"); }

void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc, bool accumulate) {
  CpuTiles tiles;
  multiply_block(tiles, a, b, steps, c, ldc, accumulate);
}

}  // namespace

const TileUnit* cpu_unit() {
  static constexpr TileUnit unit = {false, reorder_a, reorder_b, begin, end, multiply};
  return &unit;
}

bool is_cpu_unit_usable() { return cpu_has_avx512_bfloat16() && cpu_has_amx() && system_permits_tiles(); }

}  // namespace logitless::gemm::tiles::amx

#else

namespace logitless::gemm::tiles::amx {

const TileUnit* cpu_unit() { return nullptr; }
bool is_cpu_unit_usable() { return false; }

}  // namespace logitless::gemm::tiles::amx

#endif  // x86-64 Linux
