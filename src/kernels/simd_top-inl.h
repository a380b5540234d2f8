// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Keeps the largest logits of a row. Compiled once per target: foreach_target.h toggles the include guard.
#if defined(LOGITLESS_KERNELS_TOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_TOP_INL_H_
#undef LOGITLESS_KERNELS_TOP_INL_H_
#else
#define LOGITLESS_KERNELS_TOP_INL_H_
#endif

#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/simd_base-inl.h"
#include "kernels/top_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The list of a row, and the bound that a column must exceed to be offered.
template <class T>
class TopRow {
 public:
  explicit TopRow(const TopArgs<T>& args) : args_(args) {}

  // A column whose logit equals the least entry's comes before it only if its id is lower. Columns come in
  // the order of their ids, but stretches of the vocabulary may not.
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

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_TOP_INL_H_
