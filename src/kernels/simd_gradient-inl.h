// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Computes gradients of logits, and sums them. Compiled once per target: foreach_target.h toggles the include
// guard.
#if defined(LOGITLESS_KERNELS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_GRADIENT_INL_H_
#undef LOGITLESS_KERNELS_GRADIENT_INL_H_
#else
#define LOGITLESS_KERNELS_GRADIENT_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

// Returns the exact residual of rounding `value` to the bfloat16 with these bits, or 0 if that is not finite.
template <class D>
HWY_INLINE hn::Vec<D> residual_of(D d, hn::Vec<D> value, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  const auto residual = hn::Sub(value, hn::BitCast(d, hn::ShiftLeft<16>(bits)));
  return hn::IfThenElseZero(hn::IsFinite(residual), residual);
}

// How a row's gradients are stored: in the type of the logits (WideRow), rounded to bfloat16 (BFloat16Row),
// or as two terms of bfloat16 (SplitRow). capped() returns the memory for the row's capped logits: in WideRow
// the output itself, else `apart`. KeptRow rounds to bfloat16 and sums the residuals by columns and over the
// row: store() adds them to the lanes of `residuals`, and the caller passes the sum of the lanes to keep().
struct NothingKept {
  static constexpr bool kSumsResiduals = false;
  void keep(double) const {}
};
template <class T>
struct WideRow : NothingKept {
  explicit WideRow(T* row) : out(row) {}
  T* out;
  T* capped(T*) const { return out; }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> value, int64_t v, hn::Vec<D>&) const {
    hn::StoreU(value, d, out + v);
  }
};
struct BFloat16Row : NothingKept {
  explicit BFloat16Row(bfloat16* row) : out(row) {}
  bfloat16* out;
  float* capped(float* apart) const { return apart; }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> value, int64_t v, hn::Vec<D>&) const {
    store_bf16(d, value, out + v);
  }
};
struct SplitRow : NothingKept {
  SplitRow(bfloat16* row, bfloat16* low_row) : out(row), low(low_row) {}
  bfloat16* out;
  bfloat16* low;
  float* capped(float* apart) const { return apart; }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> value, int64_t v, hn::Vec<D>&) const {
    const auto high = bf16_bits(d, value);
    store_bf16_bits(d, high, out + v);
    store_bf16(d, residual_of(d, value, high), low + v);
  }
};
template <int kSign, class D>
HWY_INLINE void keep_columns(D d, hn::Vec<D> value, hn::Vec<D> residual, int64_t v, float* columns, float* sizes) {
  const auto put = [&](float* to, hn::Vec<D> summand) HWY_ATTR {
    const auto sum = hn::LoadU(d, to + v);
    hn::StoreU(kSign > 0 ? hn::Add(sum, summand) : hn::Sub(sum, summand), d, to + v);
  };
  if (columns) put(columns, residual);
  if (sizes) put(sizes, hn::IfThenElseZero(hn::IsFinite(value), hn::Abs(value)));
}
struct KeptRow {
  static constexpr bool kSumsResiduals = true;
  bfloat16* out;
  Residuals kept;
  float* total;
  float* capped(float* apart) const { return apart; }
  void keep(float residual) const { *total += residual; }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> value, int64_t v, hn::Vec<D>& residuals) const {
    const auto bits = bf16_bits(d, value);
    store_bf16_bits(d, bits, out + v);
    const auto residual = residual_of(d, value, bits);
    residuals = hn::Add(residuals, residual);
    keep_columns<1>(d, value, residual, v, kept.columns, kept.sizes);
  }
};
// Subtracts the residuals that KeptRow adds for a column, and stores nothing.
struct TakenBackRow {
  Residuals kept;
  float* total;
  void keep(float residual) const { *total -= residual; }
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> value, int64_t v, hn::Vec<D>& residuals) const {
    const auto residual = residual_of(d, value, bf16_bits(d, value));
    residuals = hn::Add(residuals, residual);
    keep_columns<-1>(d, value, residual, v, kept.columns, kept.sizes);
  }
};
// Stores a single column.
template <class D, class Row>
HWY_INLINE void store_one(D narrow, const Row& row, hn::Vec<D> value, int64_t v) {
  auto residuals = hn::Zero(narrow);
  row.store(narrow, value, v, residuals);
  row.keep(hn::GetLane(residuals));
}

// kSquares only has a meaning with kNonlinear.
template <bool kNonlinear, bool kSquares, Cross kCross, bool kCap, class D, class T, class Weight, class Row>
HWY_INLINE void gradient_columns(D d, const RowGradient<T>& g, const T* capped, const T* derivative,
                                 const Weight* weights, T uniform_cross, int64_t begin, int64_t end, const Row& row) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V max = hn::Set(d, g.max);
  const V scale = hn::Set(d, g.inverse_temperature);
  const V log_sum = hn::Set(d, g.log_sum);
  const V softmax_scale = hn::Set(d, -g.softmax_scale);
  V residuals = hn::Zero(d);
  for (int64_t v = begin; v < end; v += lanes) {
    const V below_max = hn::Sub(hn::LoadU(d, capped + v), max);
    const V log_p = hn::MulSub(below_max, scale, log_sum);
    const V p = exp_nonpositive(d, log_p);
    V slope = softmax_scale;
    if constexpr (kNonlinear) {
      // p is 0 long before -1000: the bound only prevents 0 · (-inf) from being NaN.
      const V bounded = hn::Max(log_p, hn::Set(d, T{-1000}));
      slope = hn::NegMulAdd(hn::Set(d, g.entropy_scale), hn::Add(bounded, hn::Set(d, g.entropy)), slope);
    }
    if constexpr (kNonlinear && kSquares) {
      const V others =
          hn::IfThenElse(hn::Eq(below_max, hn::Zero(d)), hn::Set(d, g.others), hn::Sub(hn::Set(d, T{1}), p));
      slope = hn::NegMulAdd(hn::Set(d, g.square_scale), others, slope);
    }
    V out = hn::Mul(p, slope);
    if constexpr (kCross == Cross::kUniform) out = hn::Add(out, hn::Set(d, g.cross_scale * uniform_cross));
    if constexpr (kCross == Cross::kWeights) {
      const V q = load_weights(d, weights + v);
      out = hn::MulAdd(hn::Set(d, g.cross_scale), q, out);
    }
    if constexpr (kCap) out = hn::Mul(out, hn::LoadU(d, derivative + v));
    row.store(d, out, v, residuals);
  }
  row.keep(hn::GetLane(hn::SumOfLanes(d, residuals)));
}

template <bool kNonlinear, Cross kCross, bool kCap, class T, class Gradient, class RowAt>
HWY_NOINLINE void gradient_rows(const GradientArgs<T, Gradient>& args, const RowAt& row_at) {
  const TileShape<T>& shape = args.shape;
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = shape.cols - shape.cols % static_cast<int64_t>(hn::Lanes(wide));
  const T uniform = static_cast<T>(args.uniform_cross);
  T* const derivative = args.scratch;
  for (int64_t k = 0; k < args.count; ++k) {
    const RowGradient<T>& g = args.gradients[k];
    const T* from = args.logits + args.places[k] * shape.stride;
    const auto row = row_at(k);
    T* const capped = row.capped(args.scratch + shape.cols);
    if (std::isnan(g.max) || std::isnan(g.log_sum)) {
      const T nan = std::numeric_limits<T>::quiet_NaN();
      for (int64_t v = 0; v < shape.cols; ++v) store_one(narrow, row, hn::Set(narrow, nan), v);
      continue;
    }
    if (!shape.plain()) {
      cap_row<T>(shape, from, capped, kCap ? derivative : nullptr);
      from = capped;
    } else if (args.low) {
      // Low terms may overwrite logits that have not been read yet.
      std::memcpy(capped, from, static_cast<size_t>(shape.cols) * sizeof(T));
      from = capped;
    }
    const PickGradient<T>* const picks_end = g.picks + g.pick_count;
    const auto columns = [&](const auto* weights, auto squares) HWY_ATTR {
      if constexpr (decltype(row)::kSumsResiduals) {
        // A pick's gradient replaces the formula's in its column, so the formula's residual there must not be
        // counted.
        const TakenBackRow back = {row.kept, row.total};
        for_each_picked_column(g.picks, picks_end, args.first_column, shape.cols,
                               [&](const PickGradient<T>&, int64_t column) HWY_ATTR {
                                 gradient_columns<kNonlinear, squares.value, kCross, kCap>(
                                     narrow, g, from, derivative, weights, uniform, column, column + 1, back);
                               });
      }
      gradient_columns<kNonlinear, squares.value, kCross, kCap>(wide, g, from, derivative, weights, uniform, 0, whole,
                                                                row);
      if (whole < shape.cols) {
        gradient_columns<kNonlinear, squares.value, kCross, kCap>(narrow, g, from, derivative, weights, uniform, whole,
                                                                  shape.cols, row);
      }
    };
    const auto with_squares = [&](const auto* weights) HWY_ATTR {
      if constexpr (kNonlinear) {
        with_flag(g.square_scale != 0, [&](auto squares) HWY_ATTR { columns(weights, squares); });
      } else {
        columns(weights, std::false_type());
      }
    };
    if constexpr (kCross == Cross::kWeights) {
      const T* own = args.row_weights ? g.weights + args.first_column : nullptr;
      with_weights(own, args.cross_weights, with_squares);
    } else {
      with_squares(args.cross_weights);
    }
    for_each_picked_column(
        g.picks, picks_end, args.first_column, shape.cols, [&](const PickGradient<T>& pick, int64_t column) HWY_ATTR {
          store_one(narrow, row, hn::Set(narrow, pick.gradient * (kCap ? derivative[column] : T{1})), column);
        });
  }
}

template <class T, class Gradient, class RowAt>
void gradient_as(const GradientArgs<T, Gradient>& args, const RowAt& row_at) {
  with_statistics(args, args.nonlinear, [&](auto nonlinear, auto cross) HWY_ATTR {
    with_flag(args.shape.softcap > 0,
              [&](auto cap) HWY_ATTR { gradient_rows<nonlinear.value, cross.value, cap.value>(args, row_at); });
  });
}

// Calls make(row_at), where row_at(k) returns how row k of the output is stored.
template <class T, class Gradient, class Make>
void with_rows(const GradientArgs<T, Gradient>& args, const Make& make) {
  const auto at = [&](Gradient* rows, int64_t k) { return rows + k * args.out_stride; };
  if constexpr (std::is_same_v<T, Gradient>) {
    make([&](int64_t k) { return WideRow<T>(at(args.out, k)); });
  } else if (args.low) {
    make([&](int64_t k) { return SplitRow(at(args.out, k), at(args.low, k)); });
  } else if (args.residuals.rows) {
    const size_t bytes = static_cast<size_t>(args.shape.cols) * sizeof(float);
    for (float* const sums : {args.residuals.columns, args.residuals.sizes}) {
      if (sums) std::memset(sums, 0, bytes);
    }
    make([&](int64_t k) {
      args.residuals.rows[k] = 0;
      return KeptRow{at(args.out, k), args.residuals, args.residuals.rows + k};
    });
  } else {
    make([&](int64_t k) { return BFloat16Row(at(args.out, k)); });
  }
}

template <class T, class Gradient>
void gradient(const GradientArgs<T, Gradient>& args) {
  with_rows(args, [&](const auto& row_at) { gradient_as(args, row_at); });
}

template <class D>
HWY_INLINE hn::Vec<D> load_gradient(D d, const hn::TFromD<D>* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_gradient(D d, const bfloat16* from) {
  return load_bf16(d, from);
}

template <class T, class Gradient>
void add_column_sums(const Gradient* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate, T* sums) {
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t row = 0; row < rows; ++row) sum = hn::Add(sum, load_gradient(d, tile + row * stride + v));
    if (accumulate) sum = hn::Add(sum, hn::LoadU(d, sums + v));
    hn::StoreU(sum, d, sums + v);
  });
}

template <class T>
void add(const T* from, int64_t count, T* to) {
  for_each_vector<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  });
}

template <class T>
void add_scaled(const T* from, T scale, int64_t count, T* to) {
  for_each_vector<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, scale), hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_GRADIENT_INL_H_
