// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Shared by the plain kernels: capped logits, rounding, and how gradients are stored. plain.cc has the table.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/row_kernels.h"

namespace logitless::kernels {

void set_plain_divergences(RowKernels& kernels);
void set_plain_draws(RowKernels& kernels);
UnpackKernels plain_unpack_kernels();

template <class T>
T capped(T raw, T softcap) {
  return softcap > 0 ? softcap * std::tanh(raw / softcap) : raw;
}

// Returns d capped / d raw = 1 - tanh², computed as 4e / (1 + e)² so that nothing cancels near saturation.
template <class T>
T cap_derivative(T raw, T softcap) {
  if (!(softcap > 0)) return 1;
  const T e = std::exp(-2 * std::abs(raw / softcap));
  return 4 * e / ((1 + e) * (1 + e));
}

// Rounds to `digits` bits of precision, but to no finer than multiples of 2^(lowest + 1 - digits); ties to
// even. Results above `largest` become infinity.
inline double nearest(double value, int digits, int lowest, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::ldexp(1.0, std::max(std::ilogb(value), lowest) - digits + 1);
  const double rounded = std::nearbyint(value / unit) * unit;  // only nearbyint rounds: unit is a power of 2
  if (std::abs(rounded) > largest) return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

inline double nearest(double value, DType dtype) {
  return dtype == DType::kFloat16 ? nearest(value, 11, -14, 65504) : nearest(value, 8, -126, 0x1.FEp127);
}

template <class T>
T raw_logit(const TileShape<T>& shape, const T* logits, int64_t v) {
  const T raw = logits[v] + (shape.bias ? shape.bias[v] : T{0});
  return shape.round_to ? static_cast<T>(nearest(raw, *shape.round_to)) : raw;
}

template <class T>
void cap(const TileShape<T>& shape, const T* logits, T* to) {
  for (int64_t v = 0; v < shape.cols; ++v) to[v] = capped(raw_logit(shape, logits, v), shape.softcap);
}

inline float widened(bfloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// A normal float16 has an exponent bias that is 112 less than float32's, and ten mantissa bits; a subnormal
// is a multiple of 2^-24.
inline float widened(float16 half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000) << 16;
  const uint32_t magnitude = half.bits & 0x7FFF;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude >= 0x7C00) bits = (magnitude << 13) | 0x7F800000;  // infinity and NaN
  if (magnitude < 0x0400) bits = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

inline bfloat16 rounded(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Adding half of the last kept bit, minus one if that bit is even, carries exactly when rounding goes up.
  const uint32_t nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(std::isnan(value) ? (bits >> 16) | 0x40 : nearest)};
}

// Stores column v of row k of the gradients. bfloat16 is copied as bytes, because the memory may hold logits
// of another type.
template <class T>
void store_gradient(const GradientArgs<T, T>& args, int64_t k, int64_t v, T value) {
  args.out[k * args.out_stride + v] = value;
}
inline void store_gradient(const GradientArgs<float, bfloat16>& args, int64_t k, int64_t v, float value) {
  const bfloat16 high = rounded(value);
  std::memcpy(args.out + k * args.out_stride + v, &high, sizeof high);
  float residual = value - widened(high);
  if (!std::isfinite(residual)) residual = 0;
  if (args.residuals.rows) {
    args.residuals.rows[k] += residual;
    if (args.residuals.columns) args.residuals.columns[v] += residual;
    if (args.residuals.sizes && std::isfinite(value)) args.residuals.sizes[v] += std::abs(value);
  }
  if (!args.low) return;
  const bfloat16 low = rounded(residual);
  std::memcpy(args.low + k * args.out_stride + v, &low, sizeof low);
}

template <class T, class Gradient>
void clear_residuals(const GradientArgs<T, Gradient>& args) {
  if (!args.residuals.rows) return;
  std::fill_n(args.residuals.rows, args.count, 0.0f);
  for (float* const sums : {args.residuals.columns, args.residuals.sizes}) {
    if (sums) std::fill_n(sums, args.shape.cols, 0.0f);
  }
}

}  // namespace logitless::kernels
