// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/amx_tiles.h"

#ifdef LOGITLESS_HAS_AMX

#include <cpuid.h>
// GCC's header leaves registers undefined on purpose, and warns of itself.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

// The functions below run on CPUs that available() has found; the rest of the library is compiled for any.
#define LOGITLESS_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define LOGITLESS_TARGET_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace logitless::gemm::amx {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileElements = kTileRows * kStep;  // 1 KiB
constexpr int64_t kRowBytes = 64;

bool cpu_has_amx_and_avx512() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 30 | 1u << 31;  // F, BW, VL
  constexpr unsigned kAmx = 1u << 22 | 1u << 24;                // BF16, TILE
  if ((b & kAvx512) != kAvx512 || (d & kAmx) != kAmx) return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kSaved = 0xe6 | 3u << 17;  // SSE, AVX, AVX-512 and both parts of AMX
  return (low & kSaved) == kSaved;
}

// Linux gives a process the 8 KiB of tile data only when it asks (Documentation/arch/x86/xstate.rst).
bool system_permits_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// GCC's tile intrinsics do not say what memory they read: this says that all of it may be, from `data` on.
inline void write_all(const void* data) { __asm__ volatile("" ::"r"(data) : "memory"); }

// The first `count` of 32 elements.
__mmask32 first(int64_t count) { return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1; }

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

// Loads 16 rows of 32 elements, `stride` apart, of which `rows` are there and `columns` in each.
LOGITLESS_TARGET_AVX512 inline void load_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns,
                                              Pairs& out) {
  if (rows >= kTileRows && columns >= kStep) {
    for (int64_t i = 0; i < kTileRows; ++i) out.row[i] = _mm512_loadu_si512(from + i * stride);
    return;
  }
  const __mmask32 there = first(std::max<int64_t>(columns, 0));
  for (int64_t i = 0; i < kTileRows; ++i) {
    out.row[i] = i < rows ? _mm512_maskz_loadu_epi16(there, from + i * stride) : _mm512_setzero_si512();
  }
}

LOGITLESS_TARGET_AVX512 inline void store_rows(const Pairs& pairs, uint16_t* to) {
  for (int64_t i = 0; i < kTileRows; ++i) _mm512_store_si512(to + i * kStep, pairs.row[i]);
}

// Loads a step of `depth` rows of 32 elements, `stride` apart, `edges` of which are there, and puts rows 2p
// and 2p + 1 side by side: row p of `left` has the pairs of elements 0 to 15, and of `right` 16 to 31.
LOGITLESS_TARGET_AVX512 inline void load_pairs(const uint16_t* from, int64_t stride, int64_t edges, int64_t depth,
                                               Pairs& left, Pairs& right) {
  alignas(64) static constexpr uint16_t kLeft[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i to_left = _mm512_load_si512(kLeft);
  const __m512i to_right = _mm512_add_epi16(to_left, _mm512_set1_epi16(16));
  const __mmask32 there = first(edges);
  for (int64_t p = 0; p < kTileRows; ++p) {
    const uint16_t* row = from + 2 * p * stride;
    const __m512i even = 2 * p < depth ? _mm512_maskz_loadu_epi16(there, row) : _mm512_setzero_si512();
    const __m512i odd = 2 * p + 1 < depth ? _mm512_maskz_loadu_epi16(there, row + stride) : _mm512_setzero_si512();
    left.row[p] = _mm512_permutex2var_epi16(even, to_left, odd);
    right.row[p] = _mm512_permutex2var_epi16(even, to_right, odd);
  }
}

// Packs rows that stand one after the other along the depth.
template <bool kTranspose>
LOGITLESS_TARGET_AVX512 void pack_along_depth(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t p = 0; p < depth; p += kStep) {
    for (int64_t i = 0; i < kPanel; i += kTileRows, panel += kTileElements) {
      Pairs tile;
      load_rows(view.data + i * view.edge + p, view.edge, edges - i, depth - p, tile);
      if constexpr (kTranspose) transpose(tile);
      store_rows(tile, panel);
    }
  }
}

// Packs what stands one after the other along C's edge.
template <bool kTranspose>
LOGITLESS_TARGET_AVX512 void pack_along_edge(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  for (int64_t p = 0; p < depth; p += kStep, panel += kStepElements) {
    Pairs left, right;
    load_pairs(view.data + p * view.depth, view.depth, edges, depth - p, left, right);
    if constexpr (kTranspose) {
      transpose(left);
      transpose(right);
    }
    store_rows(left, panel);
    store_rows(right, panel + kTileElements);
  }
}

LOGITLESS_TARGET_AMX void set_shapes() {
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } shapes;
  std::fill_n(shapes.row_bytes, 8, uint16_t{kRowBytes});
  std::fill_n(shapes.rows, 8, uint8_t{kTileRows});
  write_all(&shapes);
  _tile_loadconfig(&shapes);
}

LOGITLESS_TARGET_AMX void release() { _tile_release(); }

}  // namespace

bool available() {
  static const bool usable = cpu_has_amx_and_avx512() && system_permits_tiles();
  return usable;
}

void pack_a(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  if (view.depth == 1) return pack_along_depth<false>(view, edges, depth, panel);
  pack_along_edge<true>(view, edges, depth, panel);
}

void pack_b(const View& view, int64_t edges, int64_t depth, uint16_t* panel) {
  if (view.depth == 1) return pack_along_depth<true>(view, edges, depth, panel);
  pack_along_edge<false>(view, edges, depth, panel);
}

Tiles::Tiles() { set_shapes(); }

Tiles::~Tiles() { release(); }

// Of the unit's eight tiles four hold C, two a step of A and two one of B.
LOGITLESS_TARGET_AMX void multiply(const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc,
                                   bool accumulate) {
  const auto stride = static_cast<long>(ldc * static_cast<int64_t>(sizeof(float)));
  float* const below = c + kTileRows * ldc;
  write_all(a);
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + kTileRows, stride);
    _tile_loadd(2, below, stride);
    _tile_loadd(3, below + kTileRows, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step, a += kStepElements, b += kStepElements) {
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(6, b, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileElements, kRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileElements, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kTileRows, stride);
  _tile_stored(2, below, stride);
  _tile_stored(3, below + kTileRows, stride);
}

}  // namespace logitless::gemm::amx

#endif  // LOGITLESS_HAS_AMX
