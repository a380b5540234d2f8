// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "gemm/bfloat16_dots.h"

#if defined(__x86_64__) && defined(__linux__)

#include <algorithm>
#include <cstring>

#include "gemm/avx512_bfloat16-inl.h"
#include "gemm/cpu_bfloat16.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kStep = kDotsDepth;

// If B is transposed, all rows of A are multiplied by kEntries of its rows and kDepth of their depth before
// the next block, so that both blocks stay in the nearest caches.
constexpr int64_t kEntries = 8;
constexpr int64_t kDepth = 1536;
constexpr int64_t kSummedDepth = kernels::kFewRowsSummed;

// Keeps a value in a register. Otherwise the compiler reads it from memory for each instruction that uses it.
LOGITLESS_TARGET_AVX512 inline __m512i in_register(__m512i value) {
  asm("" : "+v"(value));
  return value;
}

LOGITLESS_TARGET_AVX512 inline __m512 add_dots(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

/// The sums of a block, lane by lane.
struct Sums {
  __m512 of[kLanes];
};

LOGITLESS_TARGET_AVX512 inline __m512 fold(__m512 x, __m512 y) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
}

// Returns the sum of each vector's lanes, each summed in the same order.
LOGITLESS_TARGET_AVX512 inline __m512 lane_sums(const Sums& sums) {
  __m512d halves[8];
  for (int i = 0; i < 8; ++i) {
    const __m512 x = sums.of[2 * i], y = sums.of[2 * i + 1];
    halves[i] = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y)));
  }
  __m512 quarters[4];
  for (int i = 0; i < 4; ++i) {
    const __m512d x = halves[2 * i], y = halves[2 * i + 1];
    quarters[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  return fold(fold(quarters[0], quarters[1]), fold(quarters[2], quarters[3]));
}

/// A block of both operands and of C.
struct Block {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  int64_t depth;
  float* c;
  int64_t c_stride;
  bool accumulate;
  /// For a transposed B: the prefetch begins `ahead` elements after `b`, and advances by `step` elements per
  /// kStep. Past the end of B that is harmless.
  int64_t ahead = 0;
  int64_t step = 0;
  /// For a B that is not transposed: which of kStep columns exist.
  __mmask32 columns = 0;

  void skip_rows(int64_t rows) {
    a += rows * a_stride;
    c += rows * c_stride;
  }
};

Block block_of(const BFloat16Dots& dots, int64_t begin, int64_t depth, const bfloat16* b, int64_t col) {
  return {.a = reinterpret_cast<const uint16_t*>(dots.a) + begin,
          .a_stride = dots.a_stride,
          .b = reinterpret_cast<const uint16_t*>(b),
          .b_stride = dots.b_stride,
          .depth = std::min(depth, dots.depth - begin),
          .c = dots.c + col,
          .c_stride = dots.c_stride,
          .accumulate = dots.accumulate || begin > 0};
}

// Adds a step of kRows rows of A and kCount rows of B.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void add_step(const Block& of, int64_t k, const __m512i* b, Sums& sums) {
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    const __m512i a = in_register(_mm512_loadu_si512(of.a + row * of.a_stride + k));
#pragma GCC unroll 8
    for (int entry = 0; entry < kCount; ++entry) {
      __m512& sum = sums.of[row * kCount + entry];
      sum = add_dots(sum, a, b[entry]);
    }
  }
}

// Multiplies kRows rows of A by kCount rows of B. Each lane is summed over the steps, and an element is the
// sum of its lanes.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void dot_block(const Block& of) {
  static_assert(kRows * kCount <= kLanes);
  Sums sums;
  for (__m512& sum : sums.of) sum = _mm512_setzero_ps();
  __m512i b[kCount];
  int64_t k = 0;
  for (const uint16_t* next = of.b + of.ahead; k + kStep <= of.depth; k += kStep, next += of.step) {
#pragma GCC unroll 8
    for (int entry = 0; entry < kCount; ++entry) {
      __builtin_prefetch(next + entry * of.b_stride, /*write=*/0, /*locality=*/2);
      b[entry] = in_register(_mm512_loadu_si512(of.b + entry * of.b_stride + k));
    }
    add_step<kRows, kCount>(of, k, b, sums);
  }
  if (k < of.depth) {
    const __mmask32 rest = first(of.depth - k);
    for (int entry = 0; entry < kCount; ++entry) {
      b[entry] = _mm512_maskz_loadu_epi16(rest, of.b + entry * of.b_stride + k);
    }
    add_step<kRows, kCount>(of, k, b, sums);
  }
  float elements[kLanes];
  _mm512_storeu_ps(elements, lane_sums(sums));
  for (int row = 0; row < kRows; ++row) {
    for (int entry = 0; entry < kCount; ++entry) {
      float& to = of.c[row * of.c_stride + entry];
      const float element = elements[row * kCount + entry];
      to = of.accumulate ? to + element : element;
    }
  }
}

// Multiplies kRows rows of A by `count` rows of B, kCount at a time.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void dot_rows(Block of, int64_t count) {
  for (; count >= kCount; count -= kCount, of.b += kCount * of.b_stride, of.c += kCount) dot_block<kRows, kCount>(of);
  for (; count > 0; --count, of.b += of.b_stride, ++of.c) dot_block<kRows, 1>(of);
}

// Each block of rows prefetches a share of the next entries. Single rows read one entry after the other, and
// the CPU itself prefetches the next elements.
LOGITLESS_TARGET_AVX512 void multiply_entries(const BFloat16Dots& dots) {
  const auto* const b = static_cast<const bfloat16*>(dots.b);
  const int64_t blocks = dots.rows / 8 + dots.rows % 8 / 4 + dots.rows % 4;
  for (int64_t entry = 0; entry < dots.cols; entry += kEntries) {
    const int64_t count = std::min(kEntries, dots.cols - entry);
    for (int64_t begin = 0; begin < dots.depth; begin += kDepth) {
      Block of = block_of(dots, begin, kDepth, b + entry * dots.b_stride + begin, entry);
      of.ahead = kEntries * dots.b_stride;
      of.step = std::max<int64_t>(1, kStep / blocks);
      const int64_t share = of.depth / blocks;
      const auto skip_rows = [&](int64_t rows) {
        of.skip_rows(rows);
        of.ahead += share;
      };
      int64_t rows = dots.rows;
      for (; rows >= 8; rows -= 8, skip_rows(8)) dot_rows<8, 2>(of, count);
      for (; rows >= 4; rows -= 4, skip_rows(4)) dot_rows<4, 4>(of, count);
      for (; rows > 0; --rows, skip_rows(1)) dot_rows<1, 1>(of, count);
    }
  }
}

/// kStep columns of a block of B in the order of the instruction: for each two rows of B, the pairs of
/// elements of columns 0 to 15, then of 16 to 31. They are contiguous, whatever B's stride, so that they stay
/// in the nearest cache for all rows of A.
struct Strip {
  alignas(64) uint16_t pairs[kSummedDepth / 2][2][kStep];
};

LOGITLESS_TARGET_AVX512 inline void fill(const Block& of, Strip& strip) {
  const uint16_t* b = of.b;
  for (int64_t k = 0; k < of.depth; k += 2, b += 2 * of.b_stride) {
    const __m512i even = _mm512_maskz_loadu_epi16(of.columns, b);
    const __m512i odd = _mm512_maskz_loadu_epi16(k + 1 < of.depth ? of.columns : 0, b + of.b_stride);
    // Prefetches the beginning of the next strip.
    __builtin_prefetch(b + kStep, /*write=*/0, /*locality=*/2);
    __builtin_prefetch(b + of.b_stride + kStep, /*write=*/0, /*locality=*/2);
    _mm512_store_si512(strip.pairs[k / 2][0], pairs(even, odd, 0));
    _mm512_store_si512(strip.pairs[k / 2][1], pairs(even, odd, kLanes));
  }
}

LOGITLESS_TARGET_AVX512 inline void put(const Block& of, int64_t row, int64_t half, __m512 sum) {
  float* const to = of.c + row * of.c_stride + half * kLanes;
  const auto mask = static_cast<__mmask16>(of.columns >> (half * kLanes));
  if (of.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
  _mm512_mask_storeu_ps(to, mask, sum);
}

template <int kRows>
LOGITLESS_TARGET_AVX512 inline void multiply_strip(const Block& of, const Strip& strip) {
  __m512 low[kRows], high[kRows];
  for (int row = 0; row < kRows; ++row) low[row] = high[row] = _mm512_setzero_ps();
  for (int64_t k = 0; k < of.depth; k += 2) {
    const __m512i b_low = in_register(_mm512_load_si512(strip.pairs[k / 2][0]));
    const __m512i b_high = in_register(_mm512_load_si512(strip.pairs[k / 2][1]));
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      int32_t pair = 0;
      std::memcpy(&pair, of.a + row * of.a_stride + k, sizeof pair);
      const __m512i a = in_register(_mm512_set1_epi32(pair));
      low[row] = add_dots(low[row], a, b_low);
      high[row] = add_dots(high[row], a, b_high);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    put(of, row, 0, low[row]);
    put(of, row, 1, high[row]);
  }
}

LOGITLESS_TARGET_AVX512 void multiply_depths(const BFloat16Dots& dots) {
  const auto* const b = static_cast<const bfloat16*>(dots.b);
  Strip strip;
  for (int64_t begin = 0; begin < dots.depth; begin += kSummedDepth) {
    for (int64_t col = 0; col < dots.cols; col += kStep) {
      Block of = block_of(dots, begin, kSummedDepth, b + begin * dots.b_stride + col, col);
      of.columns = first(dots.cols - col);
      fill(of, strip);
      int64_t rows = dots.rows;
      for (; rows >= 8; rows -= 8, of.skip_rows(8)) multiply_strip<8>(of, strip);
      for (; rows >= 4; rows -= 4, of.skip_rows(4)) multiply_strip<4>(of, strip);
      for (; rows > 0; --rows, of.skip_rows(1)) multiply_strip<1>(of, strip);
    }
  }
}

void multiply(const BFloat16Dots& dots) { return dots.b_transposed ? multiply_entries(dots) : multiply_depths(dots); }

}  // namespace

void (*bfloat16_dots())(const BFloat16Dots&) {
  static const bool usable = cpu_has_avx512_bfloat16();
  return usable ? multiply : nullptr;
}

}  // namespace logitless::gemm

#else

namespace logitless::gemm {

void (*bfloat16_dots())(const BFloat16Dots&) { return nullptr; }

}  // namespace logitless::gemm

#endif
