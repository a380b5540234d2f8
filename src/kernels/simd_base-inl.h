// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Shared by the row kernels of one target: exponentials, rounding, capped logits, and the choice of the loops
// for a call. Compiled once per target: foreach_target.h toggles the include guard.
#if defined(LOGITLESS_KERNELS_BASE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_BASE_INL_H_
#undef LOGITLESS_KERNELS_BASE_INL_H_
#else
#define LOGITLESS_KERNELS_BASE_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns exp(x) for x <= 0 in float32: 2^q · exp(r) with |r| <= ln(2)/2 and exp(r) = 1 + r + r² P(r), where
// P has degree 4 and interpolates at the Chebyshev nodes (relative error 1.1e-8, less than the rounding error
// of evaluating it). The error is at most 2 ulp for x >= -87; below that, where exp(x) < 1.7e-38, the result
// is 0. A NaN becomes 0: rows with a NaN never get here. This is cheaper than Highway's Exp, which must also
// handle positive x and denormal results.
template <class D, class V = hn::Vec<D>, hwy::EnableIf<sizeof(hn::TFromD<D>) == 4>* = nullptr>
HWY_INLINE V exp_nonpositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 · 2^23 puts the nearest integer into the low bits of the mantissa.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V q = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(q, hn::Set(d, 0.693145751953125f), x);  // 16 bits of ln(2): the product is exact
  r = hn::NegMulAdd(q, hn::Set(d, 1.42860677e-6f), r);        // the other bits of ln(2)
  const V r2 = hn::Mul(r, r);
  const V low = hn::MulAdd(hn::Set(d, 0.166665763f), r, hn::Set(d, 0.5f));
  const V high = hn::MulAdd(hn::Set(d, 0.00836323295f), r, hn::Set(d, 0.0416665524f));
  const V p = hn::MulAdd(hn::MulAdd(hn::Set(d, 0.00139262504f), r2, high), r2, low);
  const V e = hn::Add(hn::MulAdd(p, r2, r), hn::Set(d, 1.0f));
  const V scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, e), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0f)), scaled);
}

// Returns exp(x) for x <= 0 in float64, by Highway's Exp with an error of 1 ulp. A NaN becomes 0.
template <class D, class V = hn::Vec<D>, hwy::EnableIf<sizeof(hn::TFromD<D>) == 8>* = nullptr>
HWY_INLINE V exp_nonpositive(D d, V x) {
  return hn::Exp(d, x);
}

// Calls step(d, i) for [0, count) with full vectors, then with one element at a time, so that nothing outside
// is accessed.
template <class T, class Step>
HWY_INLINE void for_each_vector(int64_t count, const Step& step) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(wide, i);
  for (; i < count; ++i) step(narrow, i);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_bf16([[maybe_unused]] D d, const bfloat16* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

// Returns the bits of the nearest bfloat16 in the lower halves, ties to even; a NaN stays a NaN. Highway's
// DemoteTo truncates.
template <class D, class V = hn::Vec<D>, class V32 = hn::Vec<hn::RebindToUnsigned<D>>>
HWY_INLINE V32 bf16_bits([[maybe_unused]] D d, V value) {
  const hn::RebindToUnsigned<D> d32;
  const V32 bits = hn::BitCast(d32, value);
  const V32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const V32 rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFu))));
  const V32 quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40u));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(value)), quiet, rounded);
}

template <class D, class V32>
HWY_INLINE void store_bf16_bits([[maybe_unused]] D d, V32 bits, bfloat16* to) {
  const hn::RebindToSigned<D> ds32;
  const hn::Rebind<uint16_t, D> d16;
  // The values fit 16 bits, so the saturating conversion from signed does not change them.
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(ds32, bits)), d16, reinterpret_cast<uint16_t*>(to));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_bf16(D d, V value, bfloat16* to) {
  store_bf16_bits(d, bf16_bits(d, value), to);
}

// Parameters for rounding a T to a narrower type in place: the number of bits to drop, the smallest normal
// number, and the first power of 2 that overflows. Below the smallest normal number, adding and subtracting
// `subnormal_shift` rounds to a multiple of the type's smallest subnormal, which is the last bit of the
// shift.
template <class T>
struct NarrowType {
  int dropped;
  T smallest_normal;
  T subnormal_shift;
  T overflow;
};

// bfloat16 has the exponents of float32: its subnormals round like normal numbers, and an overflow is an
// ordinary carry.
constexpr NarrowType<float> narrow_type(DType dtype, float) {
  return dtype == DType::kFloat16 ? NarrowType<float>{13, 0x1p-14f, 0x1p-1f, 0x1p16f}
                                  : NarrowType<float>{16, 0, 0, std::numeric_limits<float>::infinity()};
}
constexpr NarrowType<double> narrow_type(DType dtype, double) {
  return dtype == DType::kFloat16 ? NarrowType<double>{42, 0x1p-14, 0x1p28, 0x1p16}
                                  : NarrowType<double>{45, 0x1p-126, 0x1p-81, 0x1p128};
}

// Returns the nearest value of a narrower type, ties to even; NaN and infinity are unchanged.
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

// Computes capped[v] = softcap · tanh(raw / softcap), or raw without a softcap, and, if `derivative` is not
// null and there is a softcap, its 1 - tanh² as 4e / (1 + e)². Returns whether a raw logit is NaN, because
// tanh may not return NaN for it. `capped` may be `logits`.
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

enum class Cross { kNone, kUniform, kWeights };

// Shared cross weights are float32 for every T; a row's own weights are T.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_weights(D d, const float* weights) {
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::LoadU(d, weights);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), weights));
  }
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_weights(D d, const double* weights) {
  return hn::LoadU(d, weights);
}

// Calls use(weights) with the row's own cross weights, or with the shared ones if `own` is null.
template <class T, class Use>
HWY_INLINE void with_weights(const T* own, const float* shared, const Use& use) {
  if constexpr (std::is_same_v<T, float>) {
    use(own ? own : shared);
  } else {
    own ? use(own) : use(shared);
  }
}

template <Cross kCross>
using CrossTag = std::integral_constant<Cross, kCross>;

// Turn flags into types, so that the loop over columns is compiled for each combination. call() gets a
// std::bool_constant, a CrossTag, or, from with_statistics, first the one and then the other.
template <class Call>
void with_flag(bool on, const Call& call) {
  on ? call(std::true_type()) : call(std::false_type());
}
template <class Args, class Call>
void with_cross(const Args& args, const Call& call) {
  if (!args.cross) return call(CrossTag<Cross::kNone>());
  args.cross_weights || args.row_weights ? call(CrossTag<Cross::kWeights>()) : call(CrossTag<Cross::kUniform>());
}
template <class Args, class Call>
void with_statistics(const Args& args, bool on, const Call& call) {
  with_cross(args, [&](auto cross) HWY_ATTR { with_flag(on, [&](auto flag) HWY_ATTR { call(flag, cross); }); });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_BASE_INL_H_
