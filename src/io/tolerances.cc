// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/tolerances.h"

#include <cmath>
#include <utility>

namespace logitless::io {
namespace {

// The relative L2 distance of two gradients before they are stored.
//   float32   1e-5, some 170 units of roundoff u = 2^-24. A sum of n terms in another order moves by about u · sqrt(n)
//   of
//             its own size (random walk of the roundings), so this covers sums over more than 10^4 terms, and the
//             logits' own error, which enters a probability as a relative error.
//   bfloat16, float16  the same: a product of two of their numbers is exact in float32 and the sums are float32.
//   float64   u is 2^29 times smaller, so 170 u would be 2e-14; the elementary functions of a float64 row are good to a
//             few units in the last place of a logit of size ~100, which is 1e-14 absolute, and a probability takes
//             that over as a relative error. 1e-12 leaves two orders above both and is 10^7 times tighter than float32.
double summed_rel_l2(DType dtype) { return dtype == DType::kFloat64 ? 1e-12 : 1e-5; }

// Largest spacing of neighbouring numbers of a type, relative to the numbers.
double spacing(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat32:
      return 0x1p-23;
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      break;
  }
  return 0x1p-7;
}

// Two numbers that differ by d before they are rounded to a grid of spacing s end on different grid points with
// probability d / s (d < s) and then differ by s: the mean square is d · s, and d · s + d² for every d. With s <= e ·
// |x| summed over the tensor and Cauchy-Schwarz: relative L2² <= e · delta + delta², where delta is the relative L2
// distance before rounding. For bfloat16 (e = 2^-7) and delta = 1e-5 that is 2.8e-4, far below the 2^-8 that two
// independent roundings of distant numbers could reach. A type as wide as the sums adds nothing that delta does not
// hold already.
double stored_rel_l2(DType dtype, DType stored) {
  const double delta = summed_rel_l2(dtype);
  const bool narrower = size_of(stored) < (dtype == DType::kFloat64 ? 8u : 4u);
  return narrower ? std::sqrt(spacing(stored) * delta + delta * delta) : delta;
}

}  // namespace

Tolerances resolve(const ToleranceConfig& config, DType dtype, DType gradient_dtype) {
  const bool wide = dtype == DType::kFloat64;
  const double stored = stored_rel_l2(dtype, gradient_dtype);
  Tolerances out{};
  out.loss_atol = config.loss_atol.value_or(wide ? 1e-12 : 1e-5);
  out.losses_rel_l2 = config.losses_rel_l2.value_or(summed_rel_l2(dtype));
  out.d_hidden_rel_l2 = config.d_hidden_rel_l2.value_or(stored);
  out.d_weight_rel_l2 = config.d_weight_rel_l2.value_or(stored);
  out.d_bias_rel_l2 = config.d_bias_rel_l2.value_or(stored);
  out.dlogits_max_abs = config.dlogits_max_abs.value_or(wide ? 1e-13 : 1e-6);
  out.dlogits_max_rel = config.dlogits_max_rel.value_or(wide ? 1e-9 : 1e-2);
  return out;
}

Gate make_gate(std::string name, double value, double limit) { return {std::move(name), value, limit, value <= limit}; }

}  // namespace logitless::io
