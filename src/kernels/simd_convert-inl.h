// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Widens 16-bit types and rounds to them. Compiled once per target: foreach_target.h toggles the include
// guard.
#if defined(LOGITLESS_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITLESS_KERNELS_CONVERT_INL_H_
#undef LOGITLESS_KERNELS_CONVERT_INL_H_
#else
#define LOGITLESS_KERNELS_CONVERT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/row_kernels.h"
#include "kernels/simd_base-inl.h"
#include "logitless/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

inline void widen_bf16(const bfloat16* from, int64_t count, float* to) {
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(load_bf16(d, from + i), d, to + i); });
}

inline void round_bf16(const float* from, int64_t count, bool accumulate, bfloat16* to) {
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR {
    auto value = hn::LoadU(d, from + i);
    if (accumulate) value = hn::Add(value, load_bf16(d, to + i));
    store_bf16(d, value, to + i);
  });
}

// Rounding to float16 uses integer arithmetic on every target, because some have no conversion and some have
// one that truncates. Widening is exact: x86-64 CPUs have an instruction from AVX2 on, which makes a NaN
// quiet.
template <class D32, class V = hn::Vec<D32>>
HWY_INLINE V load_f16(D32 d, const uint16_t* from) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D32>(), reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::RebindToUnsigned<D32> d32;
  const hn::RebindToSigned<D32> ds32;
  const hn::Rebind<uint16_t, D32> d16;
  const auto half = hn::PromoteTo(d32, hn::LoadU(d16, from));
  const auto magnitude = hn::And(half, hn::Set(d32, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Sub(half, magnitude));
  // Values below 2^15 compare the same as signed and as unsigned.
  const auto signed_magnitude = hn::BitCast(ds32, magnitude);
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto special = hn::RebindMask(d32, hn::Gt(signed_magnitude, hn::Set(ds32, 0x7BFF)));
  const auto exponent = hn::IfThenElse(special, hn::Set(d32, 224u << 23), hn::Set(d32, 112u << 23));
  const auto subnormal = hn::RebindMask(d32, hn::Lt(signed_magnitude, hn::Set(ds32, 0x0400)));
  const auto multiple = hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, signed_magnitude), hn::Set(d, 0x1p-24f)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(subnormal, multiple, hn::Add(shifted, exponent))));
#endif
}

inline void widen_f16(const float16* from, int64_t count, float* to) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  for_each_vector<float>(count, [&](auto d, int64_t i) HWY_ATTR { hn::StoreU(load_f16(d, bits + i), d, to + i); });
}

inline void round_f16(const float* from, int64_t count, bool accumulate, float16* to) {
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
    // A shift alone would give infinity the exponent 143; the bound 2^16 gives it 31, float16's exponent of
    // infinity.
    const auto finite = hn::BitCast(d32, hn::Min(rounded, hn::Set(d, 0x1p16f)));
    const auto normal = hn::ShiftRight<13>(hn::Sub(finite, hn::Set(d32, 112u << 23)));
    const auto subnormal = hn::BitCast(d32, hn::ConvertTo(ds32, hn::Mul(rounded, hn::Set(d, 0x1p24f))));
    const auto quiet = hn::Or(hn::And(hn::ShiftRight<13>(bits), hn::Set(d32, 0x3FFu)), hn::Set(d32, 0x7E00u));
    auto half = hn::IfThenElse(hn::RebindMask(d32, hn::Lt(rounded, hn::Set(d, 0x1p-14f))), subnormal, normal);
    half = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(value)), quiet, half);
    // The values fit 16 bits, so the saturating conversion from signed does not change them.
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(ds32, hn::Or(sign, half))), d16, stored + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#endif  // LOGITLESS_KERNELS_CONVERT_INL_H_
