// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Folds tiles into statistics, counts vocabulary entries above a threshold, and keeps the largest logits of a
// row. Compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_fold.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "kernels/row_kernels.h"
#include "kernels/row_stats.h"
#include "kernels/simd_base-inl.h"
#include "kernels/top_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

// The largest element of a row, and whether the row holds a NaN (which Max would drop).
template <class T>
struct MaxAndNan {
  T max = -std::numeric_limits<T>::infinity();
  bool nan = false;
};

template <class T>
HWY_NOINLINE MaxAndNan<T> find_max(const T* logits, int64_t cols) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  MaxAndNan<T> out;
  // Four chains hide the latency of Max.
  auto m0 = hn::Set(d, out.max);
  auto m1 = m0, m2 = m0, m3 = m0;
  // No NaN yet. Ne(x, x) would not detect one: Highway 1.0.3 compares ordered on AVX, which is false for a
  // NaN.
  auto nan = hn::IsNaN(m0);
  int64_t v = 0;
  for (; v + 4 * lanes <= cols; v += 4 * lanes) {
    const auto x0 = hn::LoadU(d, logits + v);
    const auto x1 = hn::LoadU(d, logits + v + lanes);
    const auto x2 = hn::LoadU(d, logits + v + 2 * lanes);
    const auto x3 = hn::LoadU(d, logits + v + 3 * lanes);
    nan = hn::Or(nan, hn::Or(hn::Or(hn::IsNaN(x0), hn::IsNaN(x1)), hn::Or(hn::IsNaN(x2), hn::IsNaN(x3))));
    m0 = hn::Max(m0, x0);
    m1 = hn::Max(m1, x1);
    m2 = hn::Max(m2, x2);
    m3 = hn::Max(m3, x3);
  }
  out.nan = !hn::AllFalse(d, nan);
  const auto largest = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  // MaxOfLanes of Highway 1.0.3's emulated target starts from the lowest finite number, which is above -inf.
  if (!hn::AllTrue(d, hn::Eq(largest, hn::Set(d, out.max)))) out.max = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; v < cols; ++v) {
    out.nan |= std::isnan(logits[v]);
    if (logits[v] > out.max) out.max = logits[v];
  }
  return out;
}

template <class T>
struct RowSums {
  double below = 0;    // Σ exp(u) over columns below the largest
  double largest = 0;  // number of columns that equal the largest
  double weighted = 0;
  double cross = 0;
};

// With kMasses, also adds the mass of each segment to masses[segment].
template <bool kEntropy, Cross kCross, bool kMasses, class D, class T, class Weight>
HWY_INLINE void sum_columns(D d, const T* capped, const Weight* weights, T max, T inverse_temperature, int64_t begin,
                            int64_t end, RowSums<T>& sums, [[maybe_unused]] float* masses) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, T{1});
  const V vmax = hn::Set(d, max);
  const V scale = hn::Set(d, inverse_temperature);
  V below = zero, largest = zero, weighted = zero, cross = zero;
  [[maybe_unused]] V segment = zero;
  for (int64_t v = begin; v < end; v += lanes) {
    // Prefetches the next row or tile in memory; past the end of the memory that is harmless.
    hwy::Prefetch(capped + end + v);
    const V u = hn::Mul(hn::Sub(hn::LoadU(d, capped + v), vmax), scale);
    const V mass = exp_nonpositive(d, u);
    const auto is_below = hn::Lt(u, zero);
    below = hn::Add(below, hn::IfThenElseZero(is_below, mass));
    largest = hn::Add(largest, hn::IfThenZeroElse(is_below, one));
    // 0 · (-inf) must be 0.
    if constexpr (kEntropy) weighted = hn::Add(weighted, hn::IfThenElseZero(hn::Gt(mass, zero), hn::Mul(mass, u)));
    if constexpr (kCross == Cross::kUniform) cross = hn::Add(cross, u);
    if constexpr (kCross == Cross::kWeights) {
      const V q = load_weights(d, weights + v);
      cross = hn::Add(cross, hn::IfThenElseZero(hn::Gt(q, zero), hn::Mul(q, u)));
    }
    if constexpr (kMasses) {
      segment = hn::Add(segment, mass);
      if ((v + lanes) % kSegment == 0 || v + lanes >= end) {
        masses[v / kSegment] += static_cast<float>(hn::GetLane(hn::SumOfLanes(d, segment)));
        segment = zero;
      }
    }
  }
  sums.below += hn::GetLane(hn::SumOfLanes(d, below));
  sums.largest += hn::GetLane(hn::SumOfLanes(d, largest));
  if constexpr (kEntropy) sums.weighted += hn::GetLane(hn::SumOfLanes(d, weighted));
  if constexpr (kCross != Cross::kNone) sums.cross += hn::GetLane(hn::SumOfLanes(d, cross));
}

template <bool kEntropy, Cross kCross, bool kMasses, class T, class Weight>
HWY_NOINLINE void sum_row(const T* capped, const Weight* weights, T max, T inverse_temperature, int64_t cols,
                          RowSums<T>& sums, float* masses) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = cols - cols % static_cast<int64_t>(hn::Lanes(wide));
  sum_columns<kEntropy, kCross, kMasses>(wide, capped, weights, max, inverse_temperature, 0, whole, sums, masses);
  if (whole == cols) return;
  sum_columns<kEntropy, kCross, kMasses>(narrow, capped, weights, max, inverse_temperature, whole, cols, sums, masses);
}

template <bool kEntropy, Cross kCross, class T, class Weight>
HWY_INLINE void sum_row(const T* capped, const Weight* weights, T max, T inverse_temperature, int64_t cols,
                        RowSums<T>& sums, float* masses) {
  if (masses) {
    sum_row<kEntropy, kCross, true>(capped, weights, max, inverse_temperature, cols, sums, masses);
  } else {
    sum_row<kEntropy, kCross, false>(capped, weights, max, inverse_temperature, cols, sums, masses);
  }
}

// Sums in float64, because a row's statistics use small differences from the sum.
template <class T>
HWY_NOINLINE double sum_weights(const T* weights, int64_t cols) {
  const hn::ScalableTag<double> wide;
  auto lanes = hn::Zero(wide);
  const int64_t count = static_cast<int64_t>(hn::Lanes(wide));
  int64_t v = 0;
  for (; v + count <= cols; v += count) lanes = hn::Add(lanes, load_weights(wide, weights + v));
  double sum = hn::GetLane(hn::SumOfLanes(wide, lanes));
  for (; v < cols; ++v) sum += weights[v];
  return sum;
}

template <class T>
int64_t find_first(const T* capped, int64_t cols, T value) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t v = 0;
  for (; v + lanes <= cols; v += lanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, capped + v), hn::Set(d, value)))) break;
  }
  for (; v < cols; ++v) {
    if (capped[v] == value) return v;
  }
  return -1;
}

template <bool kEntropy, Cross kCross, class T>
HWY_NOINLINE void fold_rows(const FoldArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  double cross_mass = 0;
  if constexpr (kCross == Cross::kUniform) cross_mass = args.uniform_cross * static_cast<double>(shape.cols);
  if constexpr (kCross == Cross::kWeights) cross_mass = args.weights_mass;
  for (int64_t row = 0; row < shape.rows; ++row) {
    RowStats& stats = args.stats[row];
    const T* logits = args.logits + row * shape.stride;
    bool nan = false;
    if (!shape.plain()) {
      nan = cap_row<T>(shape, logits, args.scratch, nullptr);
      logits = args.scratch;
    }
    const MaxAndNan<T> found = find_max(logits, shape.cols);
    RowStats tile;
    tile.max = nan || found.nan ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(found.max);
    tile.cross_mass = cross_mass;
    const T* own = nullptr;
    if constexpr (kCross == Cross::kWeights) {
      if (args.row_weights) {
        own = args.row_weights + args.call_rows[row] * args.row_weights_stride;
        tile.cross_mass = sum_weights(own, shape.cols);
      }
    }
    float* const masses = args.begin_masses(row, tile.max);
    if (std::isfinite(tile.max)) {
      RowSums<T> sums;
      const T inverse_temperature = args.inverse_temperature[row];
      if constexpr (kCross == Cross::kWeights) {
        with_weights(own, args.cross_weights, [&](const auto* weights) HWY_ATTR {
          sum_row<kEntropy, kCross>(logits, weights, found.max, inverse_temperature, shape.cols, sums, masses);
        });
      } else {
        sum_row<kEntropy, kCross>(logits, args.cross_weights, found.max, inverse_temperature, shape.cols, sums, masses);
      }
      tile.rest = sums.below + (sums.largest - 1);
      tile.weighted = sums.weighted;
      tile.cross = kCross == Cross::kUniform ? sums.cross * args.uniform_cross : sums.cross;
    }
    args.for_each_pick(row, [&](double* picked, int64_t column) { *picked = logits[column]; });
    if (args.argmax && tile.max > stats.max)
      tile.argmax = args.first_column + find_first(logits, shape.cols, found.max);
    stats = merge(stats, tile, args.inverse_temperature[row]);
  }
}

template <class T>
void fold(const FoldArgs<T>& args) {
  if (args.shape.cols == 0) return;
  with_statistics(args, args.entropy,
                  [&](auto entropy, auto cross) HWY_ATTR { fold_rows<entropy.value, cross.value>(args); });
}

template <class T>
HWY_NOINLINE int64_t count_above(const T* capped, int64_t cols, T threshold) {
  size_t count = 0;
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    count += hn::CountTrue(d, hn::Gt(hn::LoadU(d, capped + v), hn::Set(d, threshold)));
  });
  return static_cast<int64_t>(count);
}

template <class T>
void count_above(const CountArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const T* logits = args.logits + row * shape.stride;
    if (!shape.plain()) {
      cap_row<T>(shape, logits, args.scratch, nullptr);
      logits = args.scratch;
    }
    args.counts[row] += count_above(logits, shape.cols, args.threshold[row]);
  }
}

// The list of a row, and the bound that a column must exceed to be offered.
template <class T>
class TopRow {
 public:
  explicit TopRow(const TopArgs<T>& args) : args_(args) {}

  // A column whose logit equals the least entry's comes before it only if its id is lower. Columns are
  // offered in the order of their ids, but ranges of the vocabulary may be folded in any order.
  bool equal_counts() const { return args_.list.state->least.id > args_.first_column; }
  T least() const { return static_cast<T>(args_.list.state->least.logit); }
  void offer(int64_t column) const { args_.list.offer({args_.capped[column], args_.first_column + column}); }

 private:
  const TopArgs<T>& args_;
};

// Returns which columns may enter the list; a NaN compares as false.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> may_enter(D, V logits, V least, bool equal_counts) {
  return equal_counts ? hn::Ge(logits, least) : hn::Gt(logits, least);
}

// Offers the columns whose mask bit is set, in order.
template <class D, class T>
HWY_INLINE void offer_all(D d, hn::Mask<D> mask, int64_t column, const TopRow<T>& row) {
  uint8_t bytes[hn::MaxLanes(d) / 8 + 8];  // StoreMaskBits clears the bits after the last lane
  hn::StoreMaskBits(d, mask, bytes);
  // A wider load would wait for the byte stores.
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < lanes; first += 8) {
    for (unsigned bits = bytes[first / 8]; bits != 0; bits &= bits - 1) {
      row.offer(column + first + std::countr_zero(bits));
    }
  }
}

template <class T>
HWY_NOINLINE void top(const TopArgs<T>& args) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const TopRow<T> row(args);
  bool equal = row.equal_counts();
  auto least = hn::Set(d, row.least());
  int64_t v = 0;
  // Nearly all columns are below the least entry, so four vectors are tested at a time.
  for (; v + 4 * lanes <= args.cols; v += 4 * lanes) {
    const T* from = args.capped + v;
    const auto m0 = may_enter(d, hn::LoadU(d, from), least, equal);
    const auto m1 = may_enter(d, hn::LoadU(d, from + lanes), least, equal);
    const auto m2 = may_enter(d, hn::LoadU(d, from + 2 * lanes), least, equal);
    const auto m3 = may_enter(d, hn::LoadU(d, from + 3 * lanes), least, equal);
    if (hn::AllFalse(d, hn::Or(hn::Or(m0, m1), hn::Or(m2, m3)))) continue;
    offer_all(d, m0, v, row);
    offer_all(d, m1, v + lanes, row);
    offer_all(d, m2, v + 2 * lanes, row);
    offer_all(d, m3, v + 3 * lanes, row);
    equal = row.equal_counts();
    least = hn::Set(d, row.least());
  }
  for (; v < args.cols; ++v) row.offer(v);
}

template <class T>
void cap(const TileShape<T>& shape, const T* logits, T* capped) {
  cap_row<T>(shape, logits, capped, nullptr);
}

void set_folds(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.fold = fold<Logit>;
    typed.count_above = count_above<Logit>;
    typed.top = top<Logit>;
    typed.cap = cap<Logit>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
