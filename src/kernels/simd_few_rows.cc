// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Multiplies a few rows by a matrix that is read once, in memory order. Compiled once per Highway target, for
// the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_few_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

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

// If B is transposed, an element of C is the dot product of two rows in memory. It is summed in this
// order: within each kFewRowsBlockDepth of the depth, full vectors lane by lane, then neighbouring lanes
// in pairs until one is left, then the remaining elements one by one; the blocks are added in order. The
// order is the same for any number of rows and vocabulary entries that are computed together.
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

// Some rows of A, some vocabulary entries, and part of the depth. Elements of B at a distance of `ahead` from
// the current ones are prefetched; past the end of B that is harmless.
template <class T, class Stored>
struct Block {
  const T* a;
  int64_t a_stride;
  const Stored* b;
  int64_t b_stride;
  int64_t depth;
  int64_t ahead;
  int64_t step;  // by which the prefetch advances per vector
  bool accumulate;
  T* c;
  int64_t c_stride;

  Block at(int64_t row, int64_t entry) const {
    Block out = *this;
    out.a += row * a_stride;
    out.b += entry * b_stride;
    out.c += row * c_stride + entry;
    return out;
  }
  // Adds the scalar tail [k, depth) to `sum` and stores it.
  HWY_INLINE void put_sum(T sum, int64_t k, int64_t row, int64_t entry) const {
    if (k < depth) sum = add_rest(sum, a + row * a_stride, b + entry * b_stride, k, depth);
    put(accumulate, sum, c + row * c_stride + entry);
  }
};

// Stores the sum of each vector's lanes, in order; each is summed as in whole_sum(). Vectors must have at
// least four lanes, and the memory must have room for a whole vector after the last sum.
template <class D, class V>
HWY_INLINE void store_sums(D d, hn::TFromD<D>* to, V v0, V v1, V v2, V v3) {
  V all = pair_sums(d, pair_sums(d, v0, v1), pair_sums(d, v2, v3));
  for (size_t lanes = hn::Lanes(d); lanes > 4; lanes /= 2) all = pair_sums(d, all, all);
  hn::StoreU(all, d, to);
}
template <class D, class V, class... Others>
HWY_INLINE void store_sums(D d, hn::TFromD<D>* to, V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7, Others... others) {
  const V first = pair_sums(d, pair_sums(d, v0, v1), pair_sums(d, v2, v3));
  const V second = pair_sums(d, pair_sums(d, v4, v5), pair_sums(d, v6, v7));
  if (hn::Lanes(d) == 4) {
    hn::StoreU(first, d, to);
    hn::StoreU(second, d, to + 4);
  } else {
    V all = pair_sums(d, first, second);
    for (size_t lanes = hn::Lanes(d); lanes > 8; lanes /= 2) all = pair_sums(d, all, all);
    hn::StoreU(all, d, to);
  }
  if constexpr (sizeof...(Others) > 0) store_sums(d, to + 8, others...);
}

// Multiplies a vector of row kRow of A by one of each entry, and adds the products to the row's sums: one sum
// per entry.
template <size_t kRow, size_t kEntries, class D, class T, class Stored, size_t... I, class... V>
HWY_INLINE void add_row(D d, const Block<T, Stored>& of, int64_t k, std::index_sequence<I...>, V&... sums) {
  const auto row = load_once(d, of.a + static_cast<int64_t>(kRow) * of.a_stride + k);
  const auto entry = [&](size_t i) { return of.b + static_cast<int64_t>(i % kEntries) * of.b_stride + k; };
  ((sums = I / kEntries == kRow ? hn::MulAdd(row, load_as(d, entry(I)), sums) : sums), ...);
}
// The same if there is a single row: then a register for each entry's address saves instructions.
template <size_t kEntries, class D, class T, class Stored, size_t... I, class... V>
HWY_INLINE void add_only_row(D d, const T* row, const Stored* const (&entries)[kEntries], int64_t k, int64_t next,
                             std::index_sequence<I...>, V&... sums) {
  if constexpr (kEntries > 1) (__builtin_prefetch(entries[I] + next, /*write=*/0, /*locality=*/2), ...);
  ((sums = hn::MulAdd(hn::LoadU(d, row + k), load_as(d, entries[I] + k), sums)), ...);
}

// Multiplies rows of A by vocabulary entries. Sum i belongs to row i / kEntries and entry i % kEntries. The
// sums are parameters, because vectors of some instruction sets cannot be elements of an array.
template <size_t kEntries, class D, class T, class Stored, size_t... Rows, size_t... I, class... V>
HWY_INLINE void dot(D d, const Block<T, Stored>& of, std::index_sequence<Rows...>, std::index_sequence<I...> indices,
                    V... sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto row = [](size_t i) { return static_cast<int64_t>(i / kEntries); };
  const auto entry = [](size_t i) { return static_cast<int64_t>(i % kEntries); };
  int64_t k = 0;
  if constexpr (sizeof...(Rows) == 1) {
    const Stored* const entries[] = {of.b + entry(I) * of.b_stride...};
    for (int64_t next = of.ahead; k + lanes <= of.depth; k += lanes, next += of.step) {
      add_only_row(d, of.a, entries, k, next, indices, sums...);
    }
  } else {
    for (int64_t next = of.ahead; k + lanes <= of.depth; k += lanes, next += of.step) {
      // Into L2, because L1 has room only for the data in use.
      for (size_t e = 0; e < kEntries; ++e) {
        __builtin_prefetch(of.b + entry(e) * of.b_stride + next, /*write=*/0, /*locality=*/2);
      }
      (add_row<Rows, kEntries>(d, of, k, indices, sums...), ...);
    }
  }
  if constexpr (sizeof...(I) > 1) {
    if (lanes >= 4) {
      T stored[sizeof...(I) + HWY_MAX_BYTES / sizeof(T)];
      store_sums(d, stored, sums...);
      return (of.put_sum(stored[I], k, row(I), entry(I)), ...);
    }
  }
  (of.put_sum(whole_sum<T>(sums), k, row(I), entry(I)), ...);
}
template <size_t, class D>
HWY_INLINE hn::Vec<D> zero(D d) {
  return hn::Zero(d);
}
template <size_t kEntries, class T, class Stored, size_t... Rows, size_t... I>
HWY_INLINE void dot(const Block<T, Stored>& of, std::index_sequence<Rows...> rows, std::index_sequence<I...> indices) {
  const hn::ScalableTag<T> d;
  dot<kEntries>(d, of, rows, indices, zero<I>(d)...);
}
template <size_t kRows, size_t kEntries, class T, class Stored>
HWY_INLINE void dot(const Block<T, Stored>& of) {
  dot<kEntries>(of, std::make_index_sequence<kRows>(), std::make_index_sequence<kRows * kEntries>());
}

// 32 vector registers hold the sums of eight rows by two entries, and their operands; 16 registers hold four
// rows by three entries. Four rows by two, and one row by four, have enough sums to hide the latency of
// MulAdd.
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// Multiplies all rows by `count` vocabulary entries, which begin at `all.b`. Each block of rows prefetches a
// share of the next entries, so that the loads are spread evenly.
template <class T, class Stored>
HWY_INLINE void rows_by_entries(const Block<T, Stored>& all, int64_t rows, int64_t count) {
  constexpr int64_t kRows = kManyRegisters ? 8 : 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t blocks = std::max<int64_t>(1, rows / kRows + (rows % kRows >= 4 && kRows > 4));
  int64_t row = 0;
  for (int64_t block = 0; row + 4 <= rows; ++block) {
    const bool eight = kManyRegisters && row + 8 <= rows;
    int64_t entry = 0;
    const auto next = [&] {
      Block<T, Stored> of = all.at(row, entry);
      of.ahead += block * of.depth / blocks;
      of.step = std::max<int64_t>(1, lanes / blocks);
      return of;
    };
    if constexpr (kManyRegisters) {
      for (; eight && entry + 2 <= count; entry += 2) dot<8, 2>(next());
    } else {
      for (; entry + 3 <= count; entry += 3) dot<4, 3>(next());
    }
    for (; entry + 2 <= count; entry += 2) dot<4, 2>(next());
    const int64_t height = eight ? 8 : 4;
    for (int64_t r = 0; entry < count && r < height; ++r) dot<1, 1>(all.at(row + r, entry));
    row += height;
  }
  for (; row < rows; ++row) {
    int64_t entry = 0;
    for (; entry + 4 <= count; entry += 4) {
      Block<T, Stored> of = all.at(row, entry);
      of.step = rows >= 4 || row > 0 ? 0 : lanes;
      dot<1, 4>(of);
    }
    for (; entry < count; ++entry) dot<1, 1>(all.at(row, entry));
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
      const auto multiply = [&](const auto* from, int64_t b_stride, int64_t ahead) HWY_ATTR {
        rows_by_entries(
            Block<T, std::remove_const_t<std::remove_pointer_t<decltype(from)>>>{args.a + begin, args.a_stride, from,
                                                                                 b_stride, depth, ahead, 0, accumulate,
                                                                                 args.c + first, args.c_stride},
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

// Adds the products with kFewRowsDepth rows of B to one vector of rows of C.
template <class D, class T, class Stored, size_t... Rows, class... V>
HWY_INLINE void add_vector(D d, const T* a, int64_t a_stride, const Stored* b, int64_t b_stride, T* c, int64_t c_stride,
                           std::index_sequence<Rows...>, V... sums) {
  for (int64_t k = 0; k < kFewRowsDepth; ++k) {
    const auto x = load_as(d, b + k * b_stride);
    ((sums = hn::MulAdd(hn::Set(d, a[static_cast<int64_t>(Rows) * a_stride + k]), x, sums)), ...);
  }
  (hn::StoreU(sums, d, c + static_cast<int64_t>(Rows) * c_stride), ...);
}
template <class T, class Stored, size_t... Rows>
HWY_INLINE void add_rows(const FewRowsArgs<T>& args, int64_t row, int64_t k, const Stored* b, int64_t b_stride,
                         int64_t cols, bool adds, T* c, std::index_sequence<Rows...> rows) {
  const T* const a = args.a + row * args.a_stride + k;
  c += row * args.c_stride;
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    add_vector(d, a, args.a_stride, b + v, b_stride, c + v, args.c_stride, rows,
               (adds ? hn::LoadU(d, c + static_cast<int64_t>(Rows) * args.c_stride + v) : hn::Zero(d))...);
  });
}

// Adds the products with rows [k, k + kFewRowsDepth) of B, which begin at `b`, to all rows of C.
template <class T, class Stored>
HWY_INLINE void rows_by_depth(const FewRowsArgs<T>& args, int64_t k, const Stored* b, int64_t b_stride, int64_t cols,
                              bool adds, T* c) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    add_rows(args, row, k, b, b_stride, cols, adds, c, std::make_index_sequence<4>());
  }
  for (; row < args.rows; ++row) add_rows(args, row, k, b, b_stride, cols, adds, c, std::make_index_sequence<1>());
}

// Computes C = the sum over depths [begin, end), for some columns.
template <class T, class Stored>
HWY_INLINE void sum_depths(const FewRowsArgs<T>& args, const Stored* b, int64_t begin, int64_t end, int64_t cols,
                           T* c) {
  int64_t k = begin;
  for (; k + kFewRowsDepth <= end; k += kFewRowsDepth) {
    const Stored* from = b + k * args.b_stride;
    if (!is_widened_once(args, b)) {
      rows_by_depth(args, k, from, args.b_stride, cols, k > begin, c);
      continue;
    }
    for (int64_t r = 0; r < kFewRowsDepth; ++r) {
      widen_to(from + r * args.b_stride, cols, args.scratch + r * kFewRowsCols);
    }
    rows_by_depth(args, k, static_cast<const T*>(args.scratch), kFewRowsCols, cols, k > begin, c);
  }
  for (; k < end; ++k) {
    const Stored* from = b + k * args.b_stride;
    for (int64_t row = 0; row < args.rows; ++row) {
      T* to = c + row * args.c_stride;
      const T factor = args.a[row * args.a_stride + k];
      for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
        const auto sum = k > begin ? hn::LoadU(d, to + v) : hn::Zero(d);
        hn::StoreU(hn::MulAdd(hn::Set(d, factor), load_as(d, from + v), sum), d, to + v);
      });
    }
  }
}

// A sum over a whole vocabulary would lose digits in a single chain, so kFewRowsSummed depths are summed at a
// time, and these sums are added.
template <class T, class Stored>
HWY_NOINLINE void few_rows_by_depth(const FewRowsArgs<T>& args, const Stored* b) {
  T sums[kFewRowsTogether * kFewRowsCols];
  for (int64_t col = 0; col < args.cols; col += kFewRowsCols) {
    const int64_t cols = std::min(kFewRowsCols, args.cols - col);
    for (int64_t begin = 0; begin < args.depth; begin += kFewRowsSummed) {
      const int64_t end = std::min(begin + kFewRowsSummed, args.depth);
      for (int64_t first = 0; first < args.rows; first += kFewRowsTogether) {
        FewRowsArgs<T> some = args;
        some.rows = std::min(kFewRowsTogether, args.rows - first);
        some.a += first * args.a_stride;
        T* const c = args.c + first * args.c_stride + col;
        if (begin == 0 && !args.accumulate) {
          sum_depths(some, b + col, begin, end, cols, c);
          continue;
        }
        some.c_stride = kFewRowsCols;
        sum_depths(some, b + col, begin, end, cols, sums);
        for (int64_t row = 0; row < some.rows; ++row) {
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
