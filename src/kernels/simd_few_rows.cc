// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Multiplies a few rows with a matrix that is read once, in its own order. Compiled once per Highway target, for
// the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_few_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"
#include "kernels/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

template <class D, class T>
HWY_INLINE hn::Vec<D> load_as(D d, const T* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_as(D d, const bfloat16* from) {
  return load_bf16(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_as(D d, const float16* from) {
  return load_f16(d, reinterpret_cast<const uint16_t*>(from));
}

// Loads a vector into a register. Otherwise GCC reads it from memory again for each multiply-add that uses
// it, and the loops wait for 512-bit loads.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_once(D d, const T* from) {
  hn::Vec<D> out = hn::LoadU(d, from);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(out.raw));
#endif
  return out;
}

// Adds `sum` to *to, or overwrites it.
template <class T>
HWY_INLINE void put(bool accumulate, T sum, T* to) {
  *to = accumulate ? *to + sum : sum;
}

// If B is transposed, an element of C is the dot product of two rows in memory. It is summed in this order:
// within each kFewRowsBlockDepth of the depth, full vectors lane by lane, then neighbouring lanes in pairs until
// one is left, then the remaining elements one by one; the stretches are added in order. The order is the
// same for any number of rows and vocabulary entries that are computed together.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V pair_sums([[maybe_unused]] D d, V a, [[maybe_unused]] V b) {
#if HWY_TARGET == HWY_SCALAR
  return a;  // a single lane has no neighbour
#else
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}
template <class T>
HWY_INLINE T whole_sum(hn::Vec<hn::ScalableTag<T>> lanes) {
  const hn::ScalableTag<T> d;
  for (size_t count = hn::Lanes(d); count > 1; count /= 2) lanes = pair_sums(d, lanes, lanes);
  return hn::GetLane(lanes);
}
template <class T, class Stored>
HWY_INLINE T add_rest(T sum, const T* a, const Stored* b, int64_t begin, int64_t depth) {
  const hn::CappedTag<T, 1> one;
  auto out = hn::Set(one, sum);
  for (int64_t k = begin; k < depth; ++k) out = hn::MulAdd(hn::LoadU(one, a + k), load_as(one, b + k), out);
  return hn::GetLane(out);
}

// One stretch of the depth, of the rows of A and of some vocabulary entries. Meanwhile the elements of B that
// are `ahead` further on are prefetched; past the end of B that is harmless.
template <class T, class Stored>
struct Stretch {
  const T* a;
  int64_t a_stride;
  const Stored* b;
  int64_t b_stride;
  int64_t depth;
  int64_t ahead;
  int64_t step;  // of the prefetch, per vector of the sums
  bool accumulate;
  T* c;
  int64_t c_stride;

  Stretch at(int64_t row, int64_t entry) const {
    Stretch out = *this;
    out.a += row * a_stride;
    out.b += entry * b_stride;
    out.c += row * c_stride + entry;
    return out;
  }
  // Prefetches into the second nearest cache: the nearest one has room only for the data in use.
  HWY_INLINE void fetch(const Stored* from) const { __builtin_prefetch(from + ahead, /*write=*/0, /*locality=*/2); }
  // Adds the scalar tail [k, depth) to `sum` and stores it.
  HWY_INLINE void put_sum(T sum, int64_t k, int64_t row, int64_t entry) const {
    if (k < depth) sum = add_rest(sum, a + row * a_stride, b + entry * b_stride, k, depth);
    put(accumulate, sum, c + row * c_stride + entry);
  }
  HWY_INLINE void put_one(hn::Vec<hn::ScalableTag<T>> lanes, int64_t k, int64_t row, int64_t entry) const {
    put_sum(whole_sum<T>(lanes), k, row, entry);
  }
  HWY_INLINE void put_all(const T* sums, int64_t rows, int64_t entries, int64_t k) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t entry = 0; entry < entries; ++entry) put_sum(sums[row * entries + entry], k, row, entry);
    }
  }
};

// Returns the sums of neighbouring lanes of four vectors, then again of neighbours: a quarter of the lanes
// per vector, s0 first.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sums_of_four(D d, V s0, V s1, V s2, V s3) {
  return pair_sums(d, pair_sums(d, s0, s1), pair_sums(d, s2, s3));
}
// Stores the four sums of four vectors, in order. Vectors must have at least four lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_four(D d, V s0, V s1, V s2, V s3, hn::TFromD<D>* sums) {
  V all = sums_of_four(d, s0, s1, s2, s3);
  for (size_t lanes = hn::Lanes(d); lanes > 4; lanes /= 2) all = pair_sums(d, all, all);
  hn::StoreU(all, d, sums);
}
// Stores the eight sums of eight vectors, in order, given the two results of sums_of_four().
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_eight(D d, V first, V second, hn::TFromD<D>* sums) {
  if (hn::Lanes(d) == 4) {
    hn::StoreU(first, d, sums);
    return hn::StoreU(second, d, sums + 4);
  }
  V all = pair_sums(d, first, second);
  for (size_t lanes = hn::Lanes(d); lanes > 8; lanes /= 2) all = pair_sums(d, all, all);
  hn::StoreU(all, d, sums);
}
// Elements of an array for at most 16 sums, with room for storing a whole vector at index 8.
constexpr size_t kMostLanes = HWY_MAX_BYTES / sizeof(float) + 16;

// Eight rows by two vocabulary entries, for targets with registers for 16 sums: each element of B is used for
// eight rows. Lanes of several sums are added together, in the order of whole_sum().
template <class T, class Stored>
HWY_INLINE void dot_8x2(const Stretch<T, Stored>& of) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t as = of.a_stride;
  const T *a0 = of.a, *a4 = of.a + 4 * as;
  const Stored *b0 = of.b, *b1 = of.b + of.b_stride;
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  auto s40 = s00, s41 = s00, s50 = s00, s51 = s00, s60 = s00, s61 = s00, s70 = s00, s71 = s00;
  int64_t k = 0;
  for (int64_t next = 0; k + lanes <= of.depth; k += lanes, next += of.step) {
    of.fetch(b0 + next);
    of.fetch(b1 + next);
    const auto x = load_as(d, b0 + k), y = load_as(d, b1 + k);
    const auto r0 = load_once(d, a0 + k), r1 = load_once(d, a0 + as + k);
    s00 = hn::MulAdd(r0, x, s00), s01 = hn::MulAdd(r0, y, s01);
    s10 = hn::MulAdd(r1, x, s10), s11 = hn::MulAdd(r1, y, s11);
    const auto r2 = load_once(d, a0 + 2 * as + k), r3 = load_once(d, a0 + 3 * as + k);
    s20 = hn::MulAdd(r2, x, s20), s21 = hn::MulAdd(r2, y, s21);
    s30 = hn::MulAdd(r3, x, s30), s31 = hn::MulAdd(r3, y, s31);
    const auto r4 = load_once(d, a4 + k), r5 = load_once(d, a4 + as + k);
    s40 = hn::MulAdd(r4, x, s40), s41 = hn::MulAdd(r4, y, s41);
    s50 = hn::MulAdd(r5, x, s50), s51 = hn::MulAdd(r5, y, s51);
    const auto r6 = load_once(d, a4 + 2 * as + k), r7 = load_once(d, a4 + 3 * as + k);
    s60 = hn::MulAdd(r6, x, s60), s61 = hn::MulAdd(r6, y, s61);
    s70 = hn::MulAdd(r7, x, s70), s71 = hn::MulAdd(r7, y, s71);
  }
  if (lanes >= 4) {
    T sums[kMostLanes];
    const auto q0 = sums_of_four(d, s00, s01, s10, s11), q1 = sums_of_four(d, s20, s21, s30, s31);
    const auto q2 = sums_of_four(d, s40, s41, s50, s51), q3 = sums_of_four(d, s60, s61, s70, s71);
    if (lanes == 16) {
      hn::StoreU(pair_sums(d, pair_sums(d, q0, q1), pair_sums(d, q2, q3)), d, sums);
    } else {
      store_eight(d, q0, q1, sums);
      store_eight(d, q2, q3, sums + 8);
    }
    return of.put_all(sums, 8, 2, k);
  }
  of.put_one(s00, k, 0, 0), of.put_one(s01, k, 0, 1), of.put_one(s10, k, 1, 0), of.put_one(s11, k, 1, 1);
  of.put_one(s20, k, 2, 0), of.put_one(s21, k, 2, 1), of.put_one(s30, k, 3, 0), of.put_one(s31, k, 3, 1);
  of.put_one(s40, k, 4, 0), of.put_one(s41, k, 4, 1), of.put_one(s50, k, 5, 0), of.put_one(s51, k, 5, 1);
  of.put_one(s60, k, 6, 0), of.put_one(s61, k, 6, 1), of.put_one(s70, k, 7, 0), of.put_one(s71, k, 7, 1);
}

// Four rows by three vocabulary entries: 16 registers have no room for more sums and their operands.
template <class T, class Stored>
HWY_INLINE void dot_4x3(const Stretch<T, Stored>& of) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T *a0 = of.a, *a1 = a0 + of.a_stride, *a2 = a1 + of.a_stride, *a3 = a2 + of.a_stride;
  const Stored *b0 = of.b, *b1 = b0 + of.b_stride, *b2 = b1 + of.b_stride;
  auto s00 = hn::Zero(d), s01 = s00, s02 = s00, s10 = s00, s11 = s00, s12 = s00;
  auto s20 = s00, s21 = s00, s22 = s00, s30 = s00, s31 = s00, s32 = s00;
  int64_t k = 0;
  for (int64_t next = 0; k + lanes <= of.depth; k += lanes, next += of.step) {
    of.fetch(b0 + next);
    of.fetch(b1 + next);
    of.fetch(b2 + next);
    const auto x = load_as(d, b0 + k), y = load_as(d, b1 + k), z = load_as(d, b2 + k);
    const auto r0 = hn::LoadU(d, a0 + k);
    s00 = hn::MulAdd(r0, x, s00), s01 = hn::MulAdd(r0, y, s01), s02 = hn::MulAdd(r0, z, s02);
    const auto r1 = hn::LoadU(d, a1 + k);
    s10 = hn::MulAdd(r1, x, s10), s11 = hn::MulAdd(r1, y, s11), s12 = hn::MulAdd(r1, z, s12);
    const auto r2 = hn::LoadU(d, a2 + k);
    s20 = hn::MulAdd(r2, x, s20), s21 = hn::MulAdd(r2, y, s21), s22 = hn::MulAdd(r2, z, s22);
    const auto r3 = hn::LoadU(d, a3 + k);
    s30 = hn::MulAdd(r3, x, s30), s31 = hn::MulAdd(r3, y, s31), s32 = hn::MulAdd(r3, z, s32);
  }
  if (lanes >= 4) {
    T sums[kMostLanes];
    store_eight(d, sums_of_four(d, s00, s01, s02, s10), sums_of_four(d, s11, s12, s20, s21), sums);
    store_four(d, s22, s30, s31, s32, sums + 8);
    return of.put_all(sums, 4, 3, k);
  }
  of.put_one(s00, k, 0, 0), of.put_one(s01, k, 0, 1), of.put_one(s02, k, 0, 2);
  of.put_one(s10, k, 1, 0), of.put_one(s11, k, 1, 1), of.put_one(s12, k, 1, 2);
  of.put_one(s20, k, 2, 0), of.put_one(s21, k, 2, 1), of.put_one(s22, k, 2, 2);
  of.put_one(s30, k, 3, 0), of.put_one(s31, k, 3, 1), of.put_one(s32, k, 3, 2);
}

// Four rows by two vocabulary entries: eight sums hide the latency of MulAdd.
template <class T, class Stored>
HWY_INLINE void dot_4x2(const Stretch<T, Stored>& of) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T *a0 = of.a, *a1 = a0 + of.a_stride, *a2 = a1 + of.a_stride, *a3 = a2 + of.a_stride;
  const Stored *b0 = of.b, *b1 = of.b + of.b_stride;
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  int64_t k = 0;
  for (int64_t next = 0; k + lanes <= of.depth; k += lanes, next += of.step) {
    of.fetch(b0 + next);
    of.fetch(b1 + next);
    const auto x = load_as(d, b0 + k), y = load_as(d, b1 + k);
    const auto r0 = hn::LoadU(d, a0 + k), r1 = hn::LoadU(d, a1 + k);
    const auto r2 = hn::LoadU(d, a2 + k), r3 = hn::LoadU(d, a3 + k);
    s00 = hn::MulAdd(r0, x, s00), s01 = hn::MulAdd(r0, y, s01);
    s10 = hn::MulAdd(r1, x, s10), s11 = hn::MulAdd(r1, y, s11);
    s20 = hn::MulAdd(r2, x, s20), s21 = hn::MulAdd(r2, y, s21);
    s30 = hn::MulAdd(r3, x, s30), s31 = hn::MulAdd(r3, y, s31);
  }
  if (lanes >= 4) {
    T sums[kMostLanes];
    store_eight(d, sums_of_four(d, s00, s01, s10, s11), sums_of_four(d, s20, s21, s30, s31), sums);
    return of.put_all(sums, 4, 2, k);
  }
  of.put_one(s00, k, 0, 0), of.put_one(s01, k, 0, 1), of.put_one(s10, k, 1, 0), of.put_one(s11, k, 1, 1);
  of.put_one(s20, k, 2, 0), of.put_one(s21, k, 2, 1), of.put_one(s30, k, 3, 0), of.put_one(s31, k, 3, 1);
}

// One row by four vocabulary entries: four sums hide some of the latency.
template <class T, class Stored>
HWY_INLINE void dot_1x4(const Stretch<T, Stored>& of) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Stored *b0 = of.b, *b1 = b0 + of.b_stride, *b2 = b1 + of.b_stride, *b3 = b2 + of.b_stride;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t k = 0;
  for (int64_t next = 0; k + lanes <= of.depth; k += lanes, next += of.step) {
    of.fetch(b0 + next);
    of.fetch(b1 + next);
    of.fetch(b2 + next);
    of.fetch(b3 + next);
    const auto x = hn::LoadU(d, of.a + k);
    s0 = hn::MulAdd(x, load_as(d, b0 + k), s0);
    s1 = hn::MulAdd(x, load_as(d, b1 + k), s1);
    s2 = hn::MulAdd(x, load_as(d, b2 + k), s2);
    s3 = hn::MulAdd(x, load_as(d, b3 + k), s3);
  }
  if (lanes >= 4) {
    T sums[kMostLanes];
    store_four(d, s0, s1, s2, s3, sums);
    return of.put_all(sums, 1, 4, k);
  }
  of.put_one(s0, k, 0, 0), of.put_one(s1, k, 0, 1), of.put_one(s2, k, 0, 2), of.put_one(s3, k, 0, 3);
}

template <class T, class Stored>
HWY_INLINE void dot(const Stretch<T, Stored>& of) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= of.depth; k += lanes) sum = hn::MulAdd(hn::LoadU(d, of.a + k), load_as(d, of.b + k), sum);
  of.put_one(sum, k, 0, 0);
}

// 32 vector registers have room for the sums of eight rows by two entries; 16 registers, of four rows by
// three.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// Multiplies a stretch of all rows with `count` vocabulary entries, the first of which is at `all.b`. Each
// block of rows prefetches a share of the next entries, so that the loads are spread evenly.
template <class T, class Stored>
HWY_INLINE void rows_by_entries(const Stretch<T, Stored>& all, int64_t rows, int64_t count) {
  constexpr int64_t kRows = kManyRegisters ? 8 : 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t blocks = std::max<int64_t>(1, rows / kRows + (rows % kRows >= 4 && kRows > 4));
  int64_t row = 0;
  for (int64_t block = 0; row + 4 <= rows; ++block) {
    const bool eight = kManyRegisters && row + 8 <= rows;
    int64_t entry = 0;
    const auto next = [&] {
      Stretch<T, Stored> of = all.at(row, entry);
      of.ahead += block * of.depth / blocks;
      of.step = std::max<int64_t>(1, lanes / blocks);
      return of;
    };
    if constexpr (kManyRegisters) {
      for (; eight && entry + 2 <= count; entry += 2) dot_8x2(next());
    } else {
      for (; entry + 3 <= count; entry += 3) dot_4x3(next());
    }
    for (; entry + 2 <= count; entry += 2) dot_4x2(next());
    const int64_t height = eight ? 8 : 4;
    for (int64_t r = 0; entry < count && r < height; ++r) dot(all.at(row + r, entry));
    row += height;
  }
  for (; row < rows; ++row) {
    int64_t entry = 0;
    for (; entry + 4 <= count; entry += 4) {
      Stretch<T, Stored> of = all.at(row, entry);
      of.step = rows >= 4 || row > 0 ? 0 : lanes;
      dot_1x4(of);
    }
    for (; entry < count; ++entry) dot(all.at(row, entry));
  }
}

// Widening float16 costs as much as a few multiply-adds, so it is done once for several rows. It is exact, so
// the results have the same bits.
template <class T, class Stored>
HWY_INLINE bool is_widened_once(const FewRowsArgs<T>& args, const Stored*) {
  return std::is_same_v<Stored, float16> && args.rows > 4;
}

template <class T, class Stored>
HWY_INLINE void widen_to(const Stored* from, int64_t count, T* to) {
  for_each_vector<T>(count, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(load_as(d, from + i), d, to + i); });
}

template <class T, class Stored>
HWY_NOINLINE void few_rows_by_entries(const FewRowsArgs<T>& args, const Stored* b) {
  for (int64_t first = 0; first < args.cols; first += kFewRowsEntries) {
    const int64_t count = std::min(kFewRowsEntries, args.cols - first);
    const Stored* entries = b + first * args.b_stride;
    for (int64_t begin = 0; begin < args.depth; begin += kFewRowsBlockDepth) {
      const int64_t depth = std::min(kFewRowsBlockDepth, args.depth - begin);
      const bool accumulate = args.accumulate || begin > 0;
      const auto multiply = [&](const auto* part, int64_t b_stride, int64_t ahead) HWY_ATTR {
        rows_by_entries(
            Stretch<T, std::remove_const_t<std::remove_pointer_t<decltype(part)>>>{
                args.a + begin, args.a_stride, part, b_stride, depth, ahead, 0, accumulate, args.c + first,
                args.c_stride},
            args.rows, count);
      };
      if (!is_widened_once(args, b)) {
        multiply(entries + begin, args.b_stride, kFewRowsEntries * args.b_stride);
        continue;
      }
      for (int64_t entry = 0; entry < count; ++entry) {
        widen_to(entries + entry * args.b_stride + begin, depth, args.scratch + entry * depth);
      }
      multiply(static_cast<const T*>(args.scratch), depth, 0);
    }
  }
}

// If B is not transposed, rows of C are sums of rows of B, added in the order of the depth. So the order of
// an element's sum depends only on the depth.
template <class T, class Stored>
HWY_INLINE void add_4x1(const T* a, const Stored* b, int64_t b_stride, int64_t cols, bool adds, T* c) {
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    auto sum = adds ? hn::LoadU(d, c + v) : hn::Zero(d);
    sum = hn::MulAdd(hn::Set(d, a[0]), load_as(d, b + v), sum);
    sum = hn::MulAdd(hn::Set(d, a[1]), load_as(d, b + b_stride + v), sum);
    sum = hn::MulAdd(hn::Set(d, a[2]), load_as(d, b + 2 * b_stride + v), sum);
    sum = hn::MulAdd(hn::Set(d, a[3]), load_as(d, b + 3 * b_stride + v), sum);
    hn::StoreU(sum, d, c + v);
  });
}

// The same for four rows of C.
template <class T, class Stored>
HWY_INLINE void add_4x4(const FewRowsArgs<T>& args, const T* a, const Stored* b, int64_t b_stride, int64_t cols,
                        bool adds, T* c) {
  const T *a0 = a, *a1 = a + args.a_stride, *a2 = a1 + args.a_stride, *a3 = a2 + args.a_stride;
  T *c0 = c, *c1 = c + args.c_stride, *c2 = c1 + args.c_stride, *c3 = c2 + args.c_stride;
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    const auto begin = [&](const T* from) HWY_ATTR { return adds ? hn::LoadU(d, from + v) : hn::Zero(d); };
    auto s0 = begin(c0), s1 = begin(c1), s2 = begin(c2), s3 = begin(c3);
    for (int64_t k = 0; k < kFewRowsDepth; ++k) {
      const auto x = load_as(d, b + k * b_stride + v);
      s0 = hn::MulAdd(hn::Set(d, a0[k]), x, s0);
      s1 = hn::MulAdd(hn::Set(d, a1[k]), x, s1);
      s2 = hn::MulAdd(hn::Set(d, a2[k]), x, s2);
      s3 = hn::MulAdd(hn::Set(d, a3[k]), x, s3);
    }
    hn::StoreU(s0, d, c0 + v);
    hn::StoreU(s1, d, c1 + v);
    hn::StoreU(s2, d, c2 + v);
    hn::StoreU(s3, d, c3 + v);
  });
}

// Adds the products with rows [k, k + kFewRowsDepth) of B, the first of which is at `b`, to all rows of C.
template <class T, class Stored>
HWY_INLINE void rows_by_depth(const FewRowsArgs<T>& args, int64_t k, const Stored* b, int64_t b_stride, int64_t cols,
                              bool adds, T* c) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    add_4x4(args, args.a + row * args.a_stride + k, b, b_stride, cols, adds, c + row * args.c_stride);
  }
  for (; row < args.rows; ++row) {
    add_4x1(args.a + row * args.a_stride + k, b, b_stride, cols, adds, c + row * args.c_stride);
  }
}

// Computes C = the sum over depths [begin, end), for some columns.
template <class T, class Stored>
HWY_INLINE void sum_depths(const FewRowsArgs<T>& args, const Stored* b, int64_t begin, int64_t end, int64_t cols,
                           T* c) {
  int64_t k = begin;
  for (; k + kFewRowsDepth <= end; k += kFewRowsDepth) {
    const Stored* part = b + k * args.b_stride;
    if (!is_widened_once(args, b)) {
      rows_by_depth(args, k, part, args.b_stride, cols, k > begin, c);
      continue;
    }
    for (int64_t r = 0; r < kFewRowsDepth; ++r) {
      widen_to(part + r * args.b_stride, cols, args.scratch + r * kFewRowsCols);
    }
    rows_by_depth(args, k, static_cast<const T*>(args.scratch), kFewRowsCols, cols, k > begin, c);
  }
  for (; k < end; ++k) {
    const Stored* part = b + k * args.b_stride;
    for (int64_t row = 0; row < args.rows; ++row) {
      T* to = c + row * args.c_stride;
      const T factor = args.a[row * args.a_stride + k];
      for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
        const auto sum = k > begin ? hn::LoadU(d, to + v) : hn::Zero(d);
        hn::StoreU(hn::MulAdd(hn::Set(d, factor), load_as(d, part + v), sum), d, to + v);
      });
    }
  }
}

// A sum over a vocabulary would lose digits in a single chain, so kFewRowsSummed depths are summed at a time
// and then added.
template <class T, class Stored>
HWY_NOINLINE void few_rows_by_depth(const FewRowsArgs<T>& args, const Stored* b) {
  T sums[kFewRowsTogether * kFewRowsCols];
  for (int64_t col = 0; col < args.cols; col += kFewRowsCols) {
    const int64_t cols = std::min(kFewRowsCols, args.cols - col);
    for (int64_t begin = 0; begin < args.depth; begin += kFewRowsSummed) {
      const int64_t end = std::min(begin + kFewRowsSummed, args.depth);
      for (int64_t first = 0; first < args.rows; first += kFewRowsTogether) {
        FewRowsArgs<T> part = args;
        part.rows = std::min(kFewRowsTogether, args.rows - first);
        part.a += first * args.a_stride;
        T* const c = args.c + first * args.c_stride + col;
        if (begin == 0 && !args.accumulate) {
          sum_depths(part, b + col, begin, end, cols, c);
          continue;
        }
        part.c_stride = kFewRowsCols;
        sum_depths(part, b + col, begin, end, cols, sums);
        for (int64_t row = 0; row < part.rows; ++row) {
          T* to = c + row * args.c_stride;
          const T* from = sums + row * kFewRowsCols;
          for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
            hn::StoreU(hn::Add(hn::LoadU(d, to + v), hn::LoadU(d, from + v)), d, to + v);
          });
        }
      }
    }
  }
}

template <class T, class Stored>
void few_rows_of(const FewRowsArgs<T>& args) {
  const auto* b = static_cast<const Stored*>(args.b);
  return args.b_transposed ? few_rows_by_entries(args, b) : few_rows_by_depth(args, b);
}

inline void few_rows(const FewRowsArgs<float>& args) {
  switch (args.b_dtype) {
    case DType::kFloat16:
      return few_rows_of<float, float16>(args);
    case DType::kBFloat16:
      return few_rows_of<float, bfloat16>(args);
    case DType::kFloat32:
      return few_rows_of<float, float>(args);
    default:
      break;  // float64 products use the other overload
  }
}
inline void few_rows(const FewRowsArgs<double>& args) { few_rows_of<double, double>(args); }

void set_few_rows(RowKernels& kernels) {
  kernels.for_each_type([](auto& typed) { typed.few_rows = few_rows; });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
