// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These are the row kernels, compiled once for every instruction set that Highway knows on this architecture.
// They use no intrinsic and no compiler flag, so a new instruction set takes only a newer Highway.
#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // Without it Highway leaves its best x86 target out.
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/cache_control.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "kernels/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns exp(x) for x <= 0 in float32: 2^q · exp(r) with |r| <= ln(2)/2 and exp(r) = 1 + r + r² P(r), where
// P has degree 4 and goes through the Chebyshev nodes (its relative error is 1.1e-8, below that of evaluating
// it). The error is at most 2 ulp for x >= -87; below that, where exp(x) < 1.7e-38, the result is 0. A NaN
// becomes 0: rows with a NaN never get here. It is cheaper than Highway's Exp, which must also serve positive
// x and denormal results.
template <class D, class V = hn::Vec<D>, hwy::EnableIf<sizeof(hn::TFromD<D>) == 4>* = nullptr>
HWY_INLINE V exp_nonpositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 · 2^23 leaves the nearest integer in the low bits of the mantissa.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V q = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(q, hn::Set(d, 0.693145751953125f), x);  // 16 bits of ln(2): the product is exact
  r = hn::NegMulAdd(q, hn::Set(d, 1.42860677e-6f), r);        // and the rest of it
  const V r2 = hn::Mul(r, r);
  const V low = hn::MulAdd(hn::Set(d, 0.166665763f), r, hn::Set(d, 0.5f));
  const V high = hn::MulAdd(hn::Set(d, 0.00836323295f), r, hn::Set(d, 0.0416665524f));
  const V p = hn::MulAdd(hn::MulAdd(hn::Set(d, 0.00139262504f), r2, high), r2, low);
  const V e = hn::Add(hn::MulAdd(p, r2, r), hn::Set(d, 1.0f));
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, e), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0f)), scaled);
}

// Returns exp(x) for x <= 0 in float64. This is Highway's, with an error of 1 ulp; a NaN becomes 0.
template <class D, class V = hn::Vec<D>, hwy::EnableIf<sizeof(hn::TFromD<D>) == 8>* = nullptr>
HWY_INLINE V exp_nonpositive(D d, V x) {
  return hn::Exp(d, x);
}

// The functions of this part make capped logits.

// Walks [0, count) with full vectors of `d`, then one element at a time, so that nothing outside is touched.
template <class T, class Step>
HWY_INLINE void for_each_vector(int64_t count, const Step& step) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(wide, i);
  for (; i < count; ++i) step(narrow, i);
}

// Rounding a T to a narrower type in place takes these: the number of bits to drop, the smallest normal
// number (below it, adding and subtracting `subnormal_shift`, whose last bit is the type's smallest
// subnormal, rounds to a multiple of that), and the first power of 2 that overflows.
template <class T>
struct NarrowType {
  int dropped;
  T smallest_normal;
  T subnormal_shift;
  T overflow;
};

// float32 has bfloat16's exponents: its subnormals round like its normal numbers, and its overflow is a
// carry.
constexpr NarrowType<float> narrow_type(DType dtype, float) {
  return dtype == DType::kFloat16 ? NarrowType<float>{13, 0x1p-14f, 0x1p-1f, 0x1p16f}
                                  : NarrowType<float>{16, 0, 0, std::numeric_limits<float>::infinity()};
}
constexpr NarrowType<double> narrow_type(DType dtype, double) {
  return dtype == DType::kFloat16 ? NarrowType<double>{42, 0x1p-14, 0x1p28, 0x1p16}
                                  : NarrowType<double>{45, 0x1p-126, 0x1p-81, 0x1p128};
}

// Returns the nearest value of a narrower type, ties to even; NaN and infinity stay.
template <DType kTo, class D, class V = hn::Vec<D>>
HWY_INLINE V round_in_place(D d, V value) {
  using T = hn::TFromD<D>;
  constexpr NarrowType<T> to = narrow_type(kTo, T{});
  const hn::RebindToUnsigned<D> du;
  using U = hn::TFromD<decltype(du)>;
  const V magnitude = hn::Abs(value);
  const auto bits = hn::BitCast(du, magnitude);
  const auto odd = hn::And(hn::ShiftRight<to.dropped>(bits), hn::Set(du, U{1}));
  const auto half = hn::Set(du, (U{1} << (to.dropped - 1)) - 1);
  const auto kept = hn::Set(du, ~((U{1} << to.dropped) - 1));
  V rounded = hn::BitCast(d, hn::And(hn::Add(bits, hn::Add(odd, half)), kept));
  if constexpr (to.smallest_normal > 0) {
    const V shift = hn::Set(d, to.subnormal_shift);
    const V subnormal = hn::Sub(hn::Add(magnitude, shift), shift);
    rounded = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, to.smallest_normal)), subnormal, rounded);
  }
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  rounded = hn::IfThenElse(hn::Ge(rounded, hn::Set(d, to.overflow)), infinity, rounded);
  return hn::IfThenElse(hn::IsNaN(value), value, hn::CopySign(rounded, value));
}

template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE V raw_logit(D d, const TileShape<T>& shape, const T* logits, int64_t v) {
  V r = hn::LoadU(d, logits + v);
  if (shape.bias) r = hn::Add(r, hn::LoadU(d, shape.bias + v));
  if (!shape.round_to) return r;
  return *shape.round_to == DType::kFloat16 ? round_in_place<DType::kFloat16>(d, r)
                                            : round_in_place<DType::kBFloat16>(d, r);
}

// These are the largest element of a row and whether it holds a NaN (Max would drop it).
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
  // No NaN was seen yet. Ne(x, x) would not find one: Highway 1.0.3 compares ordered on AVX, which is false
  // for a NaN.
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
  // Highway 1.0.3's emulated target begins MaxOfLanes at the lowest finite number, which is above -inf.
  if (!hn::AllTrue(d, hn::Eq(largest, hn::Set(d, out.max)))) out.max = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; v < cols; ++v) {
    out.nan |= std::isnan(logits[v]);
    if (logits[v] > out.max) out.max = logits[v];
  }
  return out;
}

// Computes capped[v] = softcap · tanh(raw / softcap), and, when `derivative` is given, 1 - tanh² as 4e / (1 +
// e)². It returns whether a raw logit is NaN, because tanh of it would not say so. `capped` may be `logits`.
template <class T>
HWY_NOINLINE bool cap_row(const TileShape<T>& shape, const T* logits, T* capped, T* derivative) {
  bool nan = false;
  const T scale = shape.softcap > 0 ? 1 / shape.softcap : 0;
  for_each_vector<T>(shape.cols, [&](auto d, int64_t v) HWY_ATTR {
    const auto raw = raw_logit(d, shape, logits, v);
    nan |= !hn::AllFalse(d, hn::IsNaN(raw));
    if (!(shape.softcap > 0)) {
      hn::StoreU(raw, d, capped + v);
      return;
    }
    const auto x = hn::Mul(raw, hn::Set(d, scale));
    if (derivative) {
      const auto one = hn::Set(d, T{1});
      const auto e = exp_nonpositive(d, hn::Mul(hn::Set(d, T{-2}), hn::Abs(x)));
      const auto sum = hn::Add(one, e);
      hn::StoreU(hn::Div(hn::Mul(hn::Set(d, T{4}), e), hn::Mul(sum, sum)), d, derivative + v);
    }
    hn::StoreU(hn::Mul(hn::Set(d, shape.softcap), hn::Tanh(d, x)), d, capped + v);
  });
  return nan;
}

// The functions of this part fold tiles into statistics.

enum class Prior { kNone, kUniform, kWeights };

// Prior weights are float32 for every T.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_weights(D d, const float* weights) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::LoadU(d, weights);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), weights));
  }
}

template <class T>
struct RowSums {
  double below = 0;    // Σ exp(u) of the columns below the largest
  double largest = 0;  // how many columns are the largest
  double weighted = 0;
  double prior = 0;
};

template <bool kEntropy, Prior kPrior, class D, class T>
HWY_INLINE void sum_columns(D d, const T* capped, const float* weights, T max, T inverse_temperature, int64_t begin,
                            int64_t end, RowSums<T>& sums) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, T{1});
  const V vmax = hn::Set(d, max);
  const V scale = hn::Set(d, inverse_temperature);
  V below = zero, largest = zero, weighted = zero, prior = zero;
  for (int64_t v = begin; v < end; v += lanes) {
    // What follows in memory, the next tile or row, comes in while this one is computed; past the end it is
    // harmless.
    hwy::Prefetch(capped + end + v);
    const V u = hn::Mul(hn::Sub(hn::LoadU(d, capped + v), vmax), scale);
    const V term = exp_nonpositive(d, u);
    const auto is_below = hn::Lt(u, zero);
    below = hn::Add(below, hn::IfThenElseZero(is_below, term));
    largest = hn::Add(largest, hn::IfThenZeroElse(is_below, one));
    // 0 · (-inf) must be 0.
    if constexpr (kEntropy) weighted = hn::Add(weighted, hn::IfThenElseZero(hn::Gt(term, zero), hn::Mul(term, u)));
    if constexpr (kPrior == Prior::kUniform) prior = hn::Add(prior, u);
    if constexpr (kPrior == Prior::kWeights) {
      const V q = load_weights(d, weights + v);
      prior = hn::Add(prior, hn::IfThenElseZero(hn::Gt(q, zero), hn::Mul(q, u)));
    }
  }
  sums.below += hn::GetLane(hn::SumOfLanes(d, below));
  sums.largest += hn::GetLane(hn::SumOfLanes(d, largest));
  if constexpr (kEntropy) sums.weighted += hn::GetLane(hn::SumOfLanes(d, weighted));
  if constexpr (kPrior != Prior::kNone) sums.prior += hn::GetLane(hn::SumOfLanes(d, prior));
}

template <bool kEntropy, Prior kPrior, class T>
HWY_NOINLINE void sum_row(const T* capped, const float* weights, T max, T inverse_temperature, int64_t cols,
                          RowSums<T>& sums) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = cols - cols % static_cast<int64_t>(hn::Lanes(wide));
  sum_columns<kEntropy, kPrior>(wide, capped, weights, max, inverse_temperature, 0, whole, sums);
  if (whole < cols) sum_columns<kEntropy, kPrior>(narrow, capped, weights, max, inverse_temperature, whole, cols, sums);
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

template <bool kEntropy, Prior kPrior, class T>
HWY_NOINLINE void fold_rows(const FoldArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  double prior_mass = 0;
  if constexpr (kPrior == Prior::kUniform) prior_mass = args.uniform_prior * static_cast<double>(shape.cols);
  if constexpr (kPrior == Prior::kWeights) prior_mass = args.weights_mass;
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
    tile.prior_mass = prior_mass;
    if (std::isfinite(tile.max)) {
      RowSums<T> sums;
      sum_row<kEntropy, kPrior>(logits, args.prior_weights, found.max, args.inverse_temperature[row], shape.cols, sums);
      tile.rest = sums.below + (sums.largest - 1);
      tile.weighted = sums.weighted;
      tile.prior = kPrior == Prior::kUniform ? sums.prior * args.uniform_prior : sums.prior;
    }
    const int32_t target = args.target[row];
    if (target >= 0 && target < shape.cols) tile.chosen = logits[target];
    if (args.argmax && tile.max > stats.max)
      tile.argmax = args.first_column + find_first(logits, shape.cols, found.max);
    stats = merge(stats, tile, args.inverse_temperature[row]);
  }
}

template <class T>
void fold(const FoldArgs<T>& args) {
  if (args.shape.cols == 0) return;
  const Prior prior = !args.prior ? Prior::kNone : args.prior_weights ? Prior::kWeights : Prior::kUniform;
  if (prior == Prior::kNone) {
    args.entropy ? fold_rows<true, Prior::kNone>(args) : fold_rows<false, Prior::kNone>(args);
  } else if (prior == Prior::kUniform) {
    args.entropy ? fold_rows<true, Prior::kUniform>(args) : fold_rows<false, Prior::kUniform>(args);
  } else {
    args.entropy ? fold_rows<true, Prior::kWeights>(args) : fold_rows<false, Prior::kWeights>(args);
  }
}

// The functions of this part count the words above the target.

template <class T>
HWY_NOINLINE int64_t count_above(const T* capped, int64_t cols, T chosen) {
  size_t count = 0;
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    count += hn::CountTrue(d, hn::Gt(hn::LoadU(d, capped + v), hn::Set(d, chosen)));
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
    args.counts[row] += count_above(logits, shape.cols, args.chosen[row]);
  }
}

// The functions of this part make gradients.

template <bool kEntropy, Prior kPrior, bool kCap, class D, class T>
HWY_INLINE void gradient_columns(D d, const RowGradient<T>& g, const T* capped, const T* derivative,
                                 const float* weights, T uniform_prior, int64_t begin, int64_t end, T* to) {
  using V = hn::Vec<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V max = hn::Set(d, g.max);
  const V scale = hn::Set(d, g.inverse_temperature);
  const V log_sum = hn::Set(d, g.log_sum);
  const V softmax_term = hn::Set(d, -g.softmax_term);
  for (int64_t v = begin; v < end; v += lanes) {
    const V log_p = hn::MulSub(hn::Sub(hn::LoadU(d, capped + v), max), scale, log_sum);
    const V p = exp_nonpositive(d, log_p);
    V term = softmax_term;
    if constexpr (kEntropy) {
      // p is 0 long before -1000: the bound only keeps 0 · (-inf) from being NaN.
      const V bounded = hn::Max(log_p, hn::Set(d, T{-1000}));
      term = hn::NegMulAdd(hn::Set(d, g.entropy_term), hn::Add(bounded, hn::Set(d, g.entropy)), term);
    }
    V out = hn::Mul(p, term);
    if constexpr (kPrior == Prior::kUniform) out = hn::Add(out, hn::Set(d, g.prior_term * uniform_prior));
    if constexpr (kPrior == Prior::kWeights) {
      const V q = load_weights(d, weights + v);
      out = hn::MulAdd(hn::Set(d, g.prior_term), q, out);
    }
    if constexpr (kCap) out = hn::Mul(out, hn::LoadU(d, derivative + v));
    hn::StoreU(out, d, to + v);
  }
}

template <bool kEntropy, Prior kPrior, bool kCap, class T>
HWY_NOINLINE void gradient_rows(const GradientArgs<T>& args) {
  const TileShape<T>& shape = args.shape;
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t whole = shape.cols - shape.cols % static_cast<int64_t>(hn::Lanes(wide));
  const T uniform = static_cast<T>(args.uniform_prior);
  for (int64_t k = 0; k < args.count; ++k) {
    const RowGradient<T>& g = args.gradients[k];
    const T* from = args.logits + g.source_row * shape.stride;
    T* to = args.out + k * shape.stride;
    if (std::isnan(g.max) || std::isnan(g.log_sum)) {
      for (int64_t v = 0; v < shape.cols; ++v) to[v] = std::numeric_limits<T>::quiet_NaN();
      continue;
    }
    if (!shape.plain()) {
      cap_row<T>(shape, from, to, kCap ? args.scratch : nullptr);
      from = to;
    }
    gradient_columns<kEntropy, kPrior, kCap>(wide, g, from, args.scratch, args.prior_weights, uniform, 0, whole, to);
    if (whole < shape.cols) {
      gradient_columns<kEntropy, kPrior, kCap>(narrow, g, from, args.scratch, args.prior_weights, uniform, whole,
                                               shape.cols, to);
    }
    if (g.target >= 0 && g.target < shape.cols)
      to[g.target] = g.target_gradient * (kCap ? args.scratch[g.target] : T{1});
  }
}

template <bool kEntropy, Prior kPrior, class T>
void gradient_capped(const GradientArgs<T>& args) {
  args.shape.softcap > 0 ? gradient_rows<kEntropy, kPrior, true>(args) : gradient_rows<kEntropy, kPrior, false>(args);
}

template <class T>
void gradient(const GradientArgs<T>& args) {
  const Prior prior = !args.prior ? Prior::kNone : args.prior_weights ? Prior::kWeights : Prior::kUniform;
  if (prior == Prior::kNone) {
    args.entropy ? gradient_capped<true, Prior::kNone>(args) : gradient_capped<false, Prior::kNone>(args);
  } else if (prior == Prior::kUniform) {
    args.entropy ? gradient_capped<true, Prior::kUniform>(args) : gradient_capped<false, Prior::kUniform>(args);
  } else {
    args.entropy ? gradient_capped<true, Prior::kWeights>(args) : gradient_capped<false, Prior::kWeights>(args);
  }
}

// The functions of this part sum, and convert to and from 16-bit types.

template <class T>
void add_column_sums(const T* tile, int64_t stride, int64_t rows, int64_t cols, bool accumulate, T* sums) {
  for_each_vector<T>(cols, [&](auto d, int64_t v) HWY_ATTR {
    auto sum = hn::Zero(d);
    for (int64_t row = 0; row < rows; ++row) sum = hn::Add(sum, hn::LoadU(d, tile + row * stride + v));
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

void widen_bf16(const bfloat16* from, int64_t count, float* to) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> d32;
    const hn::Rebind<uint16_t, decltype(d)> d16;
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, bits + i)))), d, to + i);
  });
}

// Highway's DemoteTo truncates; this rounds to nearest even.
void round_bf16(const float* from, int64_t count, bool accumulate, bfloat16* to) {
  uint16_t* stored = reinterpret_cast<uint16_t*>(to);
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> d32;
    const hn::RebindToSigned<decltype(d)> ds32;
    const hn::Rebind<uint16_t, decltype(d)> d16;
    auto value = hn::LoadU(d, from + i);
    if (accumulate) {
      value = hn::Add(value, hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, stored + i)))));
    }
    const auto bits = hn::BitCast(d32, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFu))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
    const auto out = hn::IfThenElse(is_nan, quiet, rounded);
    // The values fit 16 bits, so the saturating conversion from signed keeps every one of them.
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(ds32, out)), d16, stored + i);
  });
}

// float16 is converted by integer arithmetic on every target, because some have no conversion and some have
// one that truncates.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE V load_f16(D32 d, const uint16_t* from) {
  const hn::RebindToUnsigned<D32> d32;
  const hn::RebindToSigned<D32> ds32;
  const hn::Rebind<uint16_t, D32> d16;
  const auto half = hn::PromoteTo(d32, hn::LoadU(d16, from));
  const auto magnitude = hn::And(half, hn::Set(d32, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
  // Values below 2^15 compare alike signed and unsigned.
  const auto signed_magnitude = hn::BitCast(ds32, magnitude);
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto special = hn::RebindMask(d32, hn::Gt(signed_magnitude, hn::Set(ds32, 0x7BFF)));
  const auto exponent = hn::IfThenElse(special, hn::Set(d32, 224u << 23), hn::Set(d32, 112u << 23));
  const auto subnormal = hn::RebindMask(d32, hn::Lt(signed_magnitude, hn::Set(ds32, 0x0400)));
  const auto multiple = hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, signed_magnitude), hn::Set(d, 0x1p-24f)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(subnormal, multiple, hn::Add(shifted, exponent))));
}

void widen_f16(const float16* from, int64_t count, float* to) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(load_f16(d, bits + i), d, to + i); });
}

void round_f16(const float* from, int64_t count, bool accumulate, float16* to) {
  uint16_t* stored = reinterpret_cast<uint16_t*>(to);
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> d32;
    const hn::RebindToSigned<decltype(d)> ds32;
    const hn::Rebind<uint16_t, decltype(d)> d16;
    auto value = hn::LoadU(d, from + i);
    if (accumulate) value = hn::Add(value, load_f16(d, stored + i));
    const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(d32, value)), hn::Set(d32, 0x8000u));
    const auto rounded = hn::Abs(round_in_place<DType::kFloat16>(d, value));
    const auto bits = hn::BitCast(d32, rounded);
    // A shift alone would give infinity the exponent 143; the bound 2^16 gives it 31, float16's for infinity.
    const auto finite = hn::BitCast(d32, hn::Min(rounded, hn::Set(d, 0x1p16f)));
    const auto normal = hn::ShiftRight<13>(hn::Sub(finite, hn::Set(d32, 112u << 23)));
    const auto subnormal = hn::BitCast(d32, hn::ConvertTo(ds32, hn::Mul(rounded, hn::Set(d, 0x1p24f))));
    const auto quiet = hn::Or(hn::And(hn::ShiftRight<13>(bits), hn::Set(d32, 0x3FFu)), hn::Set(d32, 0x7E00u));
    auto half = hn::IfThenElse(hn::RebindMask(d32, hn::Lt(rounded, hn::Set(d, 0x1p-14f))), subnormal, normal);
    half = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(value)), quiet, half);
    // The values fit 16 bits, so the saturating conversion from signed keeps every one of them.
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(ds32, hn::Or(sign, half))), d16, stored + i);
  });
}

const RowKernels* table() {
  static const RowKernels kKernels = {
      hwy::TargetName(HWY_TARGET),
      {fold<float>, count_above<float>, gradient<float>, add_column_sums<float>, add<float>},
      {fold<double>, count_above<double>, gradient<double>, add_column_sums<double>, add<double>},
      widen_bf16,
      round_bf16,
      widen_f16,
      round_f16,
  };
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitless::kernels {

HWY_EXPORT(table);

// Highway's own dispatch is one choice for the process. A Context chooses for itself, so the table is read
// directly.
std::vector<const RowKernels*> simd_kernels() {
  std::vector<const RowKernels*> out;
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  while (targets != 0) {
    const int64_t best = targets & -targets;  // A lower bit is a better target.
    hwy::ChosenTarget chosen;
    chosen.Update(best);
    out.push_back(HWY_DISPATCH_TABLE(table)[chosen.GetIndex()]());
    targets &= targets - 1;
  }
  return out;
}

const RowKernels* find_kernels(std::string_view name) {
  if (name == "plain") return &plain_kernels();
  for (const RowKernels* kernels : simd_kernels()) {
    if (name == "auto" || name == kernels->name) return kernels;
  }
  return name == "auto" ? &plain_kernels() : nullptr;
}

}  // namespace logitless::kernels
#endif  // HWY_ONCE
