// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This multiplies a few rows with a matrix that is read once, as it stands.
// It is compiled once for each target: its guard is toggled by foreach_target.h.
#if defined(LOGITLESS_KERNELS_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_FEW_ROWS_INL_H_
#undef LOGITLESS_KERNELS_FEW_ROWS_INL_H_
#else
#define LOGITLESS_KERNELS_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"
#include "kernels/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

// Adds `sum`, or stores it.
template <class T>
HWY_INLINE void put(bool accumulate, T sum, T* to) {
  *to = accumulate ? *to + sum : sum;
}

// Where B is transposed, an element is the dot product of two rows in memory. Its full vectors are summed
// lane by lane, then the lanes, then what is left of the rows one by one: the same order however many rows
// and vocabulary entries are taken together.
template <class T>
HWY_INLINE T whole_sum(hn::Vec<hn::ScalableTag<T>> lanes) {
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<T>(), lanes));
}
template <class T, class Stored>
HWY_INLINE T add_rest(T sum, const T* a, const Stored* b, int64_t begin, int64_t depth) {
  const hn::CappedTag<T, 1> one;
  auto out = hn::Set(one, sum);
  for (int64_t k = begin; k < depth; ++k) out = hn::MulAdd(hn::LoadU(one, a + k), load_as(one, b + k), out);
  return hn::GetLane(out);
}

// Four rows by two vocabulary entries: eight sums hide the latency of MulAdd, and each element of B serves
// four rows. The next vocabulary entries come in meanwhile; past the end that is harmless.
template <class T, class Stored>
HWY_INLINE void dot_4x2(const FewRowsArgs<T>& args, const T* a, const Stored* b, int64_t b_stride, T* c) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T *a0 = a, *a1 = a + args.a_stride, *a2 = a1 + args.a_stride, *a3 = a2 + args.a_stride;
  const Stored *b0 = b, *b1 = b + b_stride;
  auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00, s30 = s00, s31 = s00;
  int64_t k = 0;
  for (; k + lanes <= args.depth; k += lanes) {
    hwy::Prefetch(b0 + 2 * b_stride + k);
    hwy::Prefetch(b1 + 2 * b_stride + k);
    const auto x = load_as(d, b0 + k), y = load_as(d, b1 + k);
    const auto r0 = hn::LoadU(d, a0 + k), r1 = hn::LoadU(d, a1 + k);
    const auto r2 = hn::LoadU(d, a2 + k), r3 = hn::LoadU(d, a3 + k);
    s00 = hn::MulAdd(r0, x, s00), s01 = hn::MulAdd(r0, y, s01);
    s10 = hn::MulAdd(r1, x, s10), s11 = hn::MulAdd(r1, y, s11);
    s20 = hn::MulAdd(r2, x, s20), s21 = hn::MulAdd(r2, y, s21);
    s30 = hn::MulAdd(r3, x, s30), s31 = hn::MulAdd(r3, y, s31);
  }
  const auto finish = [&](auto sum0, auto sum1, const T* row, T* to) HWY_ATTR {
    put(args.accumulate, add_rest(whole_sum<T>(sum0), row, b0, k, args.depth), to);
    put(args.accumulate, add_rest(whole_sum<T>(sum1), row, b1, k, args.depth), to + 1);
  };
  finish(s00, s01, a0, c);
  finish(s10, s11, a1, c + args.c_stride);
  finish(s20, s21, a2, c + 2 * args.c_stride);
  finish(s30, s31, a3, c + 3 * args.c_stride);
}

// One row by four vocabulary entries, so that four sums hide some of the latency.
template <class T, class Stored>
HWY_INLINE void dot_1x4(const FewRowsArgs<T>& args, const T* a, const Stored* b, int64_t b_stride, T* c) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Stored *b0 = b, *b1 = b + b_stride, *b2 = b1 + b_stride, *b3 = b2 + b_stride;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t k = 0;
  for (; k + lanes <= args.depth; k += lanes) {
    hwy::Prefetch(b0 + 4 * b_stride + k);
    hwy::Prefetch(b1 + 4 * b_stride + k);
    hwy::Prefetch(b2 + 4 * b_stride + k);
    hwy::Prefetch(b3 + 4 * b_stride + k);
    const auto x = hn::LoadU(d, a + k);
    s0 = hn::MulAdd(x, load_as(d, b0 + k), s0);
    s1 = hn::MulAdd(x, load_as(d, b1 + k), s1);
    s2 = hn::MulAdd(x, load_as(d, b2 + k), s2);
    s3 = hn::MulAdd(x, load_as(d, b3 + k), s3);
  }
  put(args.accumulate, add_rest(whole_sum<T>(s0), a, b0, k, args.depth), c);
  put(args.accumulate, add_rest(whole_sum<T>(s1), a, b1, k, args.depth), c + 1);
  put(args.accumulate, add_rest(whole_sum<T>(s2), a, b2, k, args.depth), c + 2);
  put(args.accumulate, add_rest(whole_sum<T>(s3), a, b3, k, args.depth), c + 3);
}

template <class T, class Stored>
HWY_INLINE void dot(const FewRowsArgs<T>& args, const T* a, const Stored* b, T* c) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t k = 0;
  for (; k + lanes <= args.depth; k += lanes) sum = hn::MulAdd(hn::LoadU(d, a + k), load_as(d, b + k), sum);
  put(args.accumulate, add_rest(whole_sum<T>(sum), a, b, k, args.depth), c);
}

// Multiplies all rows with `count` vocabulary entries, which `b` begins with.
template <class T, class Stored>
HWY_INLINE void rows_by_entries(const FewRowsArgs<T>& args, const Stored* b, int64_t b_stride, int64_t count, T* c) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    const T* a = args.a + row * args.a_stride;
    T* to = c + row * args.c_stride;
    int64_t entry = 0;
    for (; entry + 2 <= count; entry += 2) dot_4x2(args, a, b + entry * b_stride, b_stride, to + entry);
    for (int64_t r = 0; entry < count && r < 4; ++r) {
      dot(args, a + r * args.a_stride, b + entry * b_stride, to + r * args.c_stride + entry);
    }
  }
  for (; row < args.rows; ++row) {
    const T* a = args.a + row * args.a_stride;
    T* to = c + row * args.c_stride;
    int64_t entry = 0;
    for (; entry + 4 <= count; entry += 4) dot_1x4(args, a, b + entry * b_stride, b_stride, to + entry);
    for (; entry < count; ++entry) dot(args, a, b + entry * b_stride, to + entry);
  }
}

// Widening float16 costs as much as a few multiply-adds, so for several rows it is done once. It is exact:
// the bits are the same.
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
    if (!is_widened_once(args, b)) {
      rows_by_entries(args, entries, args.b_stride, count, args.c + first);
      continue;
    }
    for (int64_t entry = 0; entry < count; ++entry) {
      widen_to(entries + entry * args.b_stride, args.depth, args.scratch + entry * args.depth);
    }
    rows_by_entries(args, static_cast<const T*>(args.scratch), args.depth, count, args.c + first);
  }
}

// Where B stands as it is multiplied, rows of C are sums of rows of B, which come in depth by depth: the
// order of an element's sum is that of the depth alone.
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

// The same for four rows.
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

// Adds kFewRowsDepth rows of B from depth k on, which `b` begins with, to all rows of C.
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

// Computes C = the sum over depths [begin, end) of some columns.
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

// A sum over a vocabulary would lose digits in one chain: parts of kFewRowsPart depths are summed apart, then
// added.
template <class T, class Stored>
HWY_NOINLINE void few_rows_by_depth(const FewRowsArgs<T>& args, const Stored* b) {
  T sums[kMostFewRows * kFewRowsCols];
  FewRowsArgs<T> part = args;
  part.c_stride = kFewRowsCols;
  for (int64_t col = 0; col < args.cols; col += kFewRowsCols) {
    const int64_t cols = std::min(kFewRowsCols, args.cols - col);
    for (int64_t begin = 0; begin < args.depth; begin += kFewRowsPart) {
      const int64_t end = std::min(begin + kFewRowsPart, args.depth);
      if (begin == 0 && !args.accumulate) {
        sum_depths(args, b + col, begin, end, cols, args.c + col);
        continue;
      }
      sum_depths(part, b + col, begin, end, cols, sums);
      for (int64_t row = 0; row < args.rows; ++row) {
        T* to = args.c + row * args.c_stride + col;
        const T* from = sums + row * kFewRowsCols;
        for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
          hn::StoreU(hn::Add(hn::LoadU(d, to + v), hn::LoadU(d, from + v)), d, to + v);
        });
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
    case DType::kFloat64:
      break;  // Its sums are float64.
  }
}
inline void few_rows(const FewRowsArgs<double>& args) { few_rows_of<double, double>(args); }

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_FEW_ROWS_INL_H_
