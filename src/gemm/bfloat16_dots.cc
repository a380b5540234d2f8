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
constexpr int64_t kStep = Bfloat16Dots::kStep;

// Rows of B that all rows of A are multiplied with before the next ones are read, and how much of their
// depth: both operands' parts stay in the nearest caches.
constexpr int64_t kEntries = 8;
constexpr int64_t kStretch = 1536;
constexpr int64_t kPart = kernels::kFewRowsPart;

// A register that the compiler does not read again from memory for each instruction that uses it.
LOGITLESS_TARGET_AVX512 inline __m512i in_register(__m512i value) {
  asm("" : "+v"(value));
  return value;
}

LOGITLESS_TARGET_AVX512 inline __mmask32 first(int64_t count) {
  return count >= kStep ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
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

// Returns the sum of each vector's lanes, all made in the same order.
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

/// A part of the depth of both operands. What comes next is fetched meanwhile: from `ahead` elements further
/// on, `step` of them while the sums go on by kStep; past the end that is harmless.
struct Stretch {
  const uint16_t* a;
  int64_t a_stride;
  const uint16_t* b;
  int64_t b_stride;
  int64_t depth;
  int64_t ahead;
  int64_t step;
  float* c;
  int64_t c_stride;
  bool accumulate;
};

// Adds a step, of kRows rows of A and kCount rows of B.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void add_step(const Stretch& of, int64_t k, const __m512i* b, Sums& sums) {
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

// Multiplies kRows rows of A with kCount rows of B: an element is the sum of its lanes, and those of its
// steps.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void dot_block(const Stretch& of) {
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

// Multiplies kRows rows of A with `count` rows of B, kCount at a time.
template <int kRows, int kCount>
LOGITLESS_TARGET_AVX512 inline void dot_rows(Stretch of, int64_t count) {
  for (; count >= kCount; count -= kCount, of.b += kCount * of.b_stride, of.c += kCount) dot_block<kRows, kCount>(of);
  for (; count > 0; --count, of.b += of.b_stride, ++of.c) dot_block<kRows, 1>(of);
}

// Blocks of rows each fetch a share of the entries that come next. Single rows take one entry after the
// other: the CPU itself fetches ahead of what it reads in one stream, too.
LOGITLESS_TARGET_AVX512 void multiply_entries(const Bfloat16Dots& dots) {
  const int64_t blocks = dots.rows / 8 + dots.rows % 8 / 4 + dots.rows % 4;
  for (int64_t entry = 0; entry < dots.cols; entry += kEntries) {
    const int64_t count = std::min(kEntries, dots.cols - entry);
    for (int64_t begin = 0; begin < dots.depth; begin += kStretch) {
      Stretch of{.a = dots.a + begin,
                 .a_stride = dots.a_stride,
                 .b = dots.b + entry * dots.b_stride + begin,
                 .b_stride = dots.b_stride,
                 .depth = std::min(kStretch, dots.depth - begin),
                 .ahead = kEntries * dots.b_stride,
                 .step = std::max<int64_t>(1, kStep / blocks),
                 .c = dots.c + entry,
                 .c_stride = dots.c_stride,
                 .accumulate = dots.accumulate || begin > 0};
      const int64_t share = of.depth / blocks;
      const auto next = [&](int64_t rows) {
        of.a += rows * of.a_stride;
        of.c += rows * of.c_stride;
        of.ahead += share;
      };
      int64_t left = dots.rows;
      for (; left >= 8; left -= 8, next(8)) dot_rows<8, 2>(of, count);
      for (; left >= 4; left -= 4, next(4)) dot_rows<4, 4>(of, count);
      for (; left > 0; --left, next(1)) dot_rows<1, 1>(of, count);
    }
  }
}

/// kStep columns of a part of B as the instruction wants them: of each two of its rows the pairs of elements
/// of one column, for columns 0 to 15 and 16 to 31. They stand together however far apart rows of B are, so
/// that all rows of A find them in the nearest cache.
struct Strip {
  alignas(64) uint16_t pairs[kPart / 2][2][kStep];
};

LOGITLESS_TARGET_AVX512 inline void pack_strip(const uint16_t* b, int64_t b_stride, int64_t depth, __mmask32 columns,
                                               Strip& strip) {
  alignas(64) static constexpr uint16_t kLow[kStep] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(kLanes));
  for (int64_t k = 0; k < depth; k += 2, b += 2 * b_stride) {
    const __m512i even = _mm512_maskz_loadu_epi16(columns, b);
    const __m512i odd = _mm512_maskz_loadu_epi16(k + 1 < depth ? columns : 0, b + b_stride);
    // What the next strip begins with.
    __builtin_prefetch(b + kStep, /*write=*/0, /*locality=*/2);
    __builtin_prefetch(b + b_stride + kStep, /*write=*/0, /*locality=*/2);
    _mm512_store_si512(strip.pairs[k / 2][0], _mm512_permutex2var_epi16(even, low, odd));
    _mm512_store_si512(strip.pairs[k / 2][1], _mm512_permutex2var_epi16(even, high, odd));
  }
}

/// Where a part of A and a strip of C stand.
struct Rows {
  const uint16_t* a;
  int64_t a_stride;
  int64_t depth;
  __mmask32 columns;
  float* c;
  int64_t c_stride;
  bool accumulate;
};

LOGITLESS_TARGET_AVX512 inline void put(const Rows& of, int64_t row, int64_t half, __m512 sum) {
  float* const to = of.c + row * of.c_stride + half * kLanes;
  const auto mask = static_cast<__mmask16>(of.columns >> (half * kLanes));
  if (of.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum);
  _mm512_mask_storeu_ps(to, mask, sum);
}

template <int kRows>
LOGITLESS_TARGET_AVX512 inline void multiply_strip(const Rows& of, const Strip& strip) {
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

LOGITLESS_TARGET_AVX512 void multiply_depths(const Bfloat16Dots& dots) {
  Strip strip;
  for (int64_t begin = 0; begin < dots.depth; begin += kPart) {
    const int64_t depth = std::min(kPart, dots.depth - begin);
    for (int64_t col = 0; col < dots.cols; col += kStep) {
      const __mmask32 columns = first(dots.cols - col);
      pack_strip(dots.b + begin * dots.b_stride + col, dots.b_stride, depth, columns, strip);
      Rows of{.a = dots.a + begin,
              .a_stride = dots.a_stride,
              .depth = depth,
              .columns = columns,
              .c = dots.c + col,
              .c_stride = dots.c_stride,
              .accumulate = dots.accumulate || begin > 0};
      const auto next = [&](int64_t rows) {
        of.a += rows * of.a_stride;
        of.c += rows * of.c_stride;
      };
      int64_t left = dots.rows;
      for (; left >= 8; left -= 8, next(8)) multiply_strip<8>(of, strip);
      for (; left >= 4; left -= 4, next(4)) multiply_strip<4>(of, strip);
      for (; left > 0; --left, next(1)) multiply_strip<1>(of, strip);
    }
  }
}

void multiply(const Bfloat16Dots& dots) { return dots.b_transposed ? multiply_entries(dots) : multiply_depths(dots); }

}  // namespace

void (*bfloat16_dots())(const Bfloat16Dots&) {
  static const bool there = cpu_has_avx512_bfloat16();
  return there ? multiply : nullptr;
}

}  // namespace logitless::gemm

#else

namespace logitless::gemm {

void (*bfloat16_dots())(const Bfloat16Dots&) { return nullptr; }

}  // namespace logitless::gemm

#endif
