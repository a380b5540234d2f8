// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/tolerances.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace logitless::io {
namespace {

// The relative L2 distance of two gradients before they are stored.
//   float32: 1e-5 is some 170 units of roundoff u = 2^-24. A sum of n terms in another order moves by about
//     u · sqrt(n) of its own size (a random walk of the roundings), so this covers sums over more than 10^4
//     terms, and the logits' own error, which enters a probability as a relative error.
//   bfloat16, float16: the same, because a product of two of their numbers is exact in float32 and the sums
//     are float32.
//   float64: u is 2^29 times smaller, so 170 u would be 2e-14. But the elementary functions of a float64 row
//     are accurate to a few units in the last place of a logit of size ~100. That is 1e-14 absolute, and a
//     relative error of a probability. 1e-12 is two orders above both and 10^7 times tighter than float32.
double summed_rel_l2(DType dtype) { return dtype == DType::kFloat64 ? 1e-12 : 1e-5; }

// Returns the largest spacing of neighbouring numbers of a type, relative to the numbers.
double spacing(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat32:
      return 0x1p-23;
    case DType::kFloat16:
      return 0x1p-10;
    default:
      break;
  }
  return 0x1p-7;
}

bool is_narrower(DType stored, DType dtype) { return size_of(stored) < (dtype == DType::kFloat64 ? 8u : 4u); }

// Two numbers that differ by d before they are rounded to a grid of spacing s end on different grid points
// with probability d / s (if d < s) and then differ by s. The mean square is d · s, or d · s + d² for any d.
// With s <= e · |x|, summed over the tensor, and Cauchy-Schwarz: relative L2² <= e · delta + delta², where
// delta is the relative L2 distance before rounding. For bfloat16 (e = 2^-7) and delta = 1e-5 that is 2.8e-4,
// far below the 2^-8 that two independent roundings of distant numbers could reach. Storing in a type as wide
// as the sums adds nothing to delta.
double rounded_rel_l2(double delta, double spacing) { return std::sqrt(spacing * delta + delta * delta); }
double stored_rel_l2(double delta, DType dtype, DType stored) {
  return is_narrower(stored, dtype) ? rounded_rel_l2(delta, spacing(stored)) : delta;
}

}  // namespace

// Rounding errs by at most half of this: 2^-8 of a number, or 2^-17 if a second term holds the remainder of
// the first.
double gradient_spacing(const Plan& plan) {
  if (plan.gradient_dtype != DType::kBFloat16) return 0;
  return plan.gradient_terms == 2 ? 0x1p-16 : spacing(DType::kBFloat16);
}

TermSpacing term_spacing(const Plan& a, const Plan& b) {
  TermSpacing out;
  out.terms = std::max(gradient_spacing(a), gradient_spacing(b));
  const bool same = (a.kind == PlanKind::kExpectedRow) == (b.kind == PlanKind::kExpectedRow);
  if (!same) out.hidden_apart = (gradient_spacing(a) + gradient_spacing(b)) / 2;
  return out;
}

// Sums of rounded terms differ as much as their terms do, unless they cancel. So do sums of stored parts,
// which storing moves by at most half of the spacing.
Tolerances tolerances_of(DType dtype, DType gradient_dtype, const TermSpacing& spacing_of, bool of_parts) {
  const double summed = rounded_rel_l2(summed_rel_l2(dtype), spacing_of.terms);
  const double moved = of_parts && is_narrower(gradient_dtype, dtype) ? spacing(gradient_dtype) / 2 : 0;
  return {.loss_atol = dtype == DType::kFloat64 ? 1e-12 : 1e-5,
          .losses_rel_l2 = summed_rel_l2(dtype),
          .d_hidden_rel_l2 = stored_rel_l2(summed + spacing_of.hidden_apart, dtype, gradient_dtype),
          .of_head_rel_l2 = stored_rel_l2(summed + moved, dtype, gradient_dtype)};
}

// One rounding to nearest moves x by at most half of the spacing there: spacing(stored) · |x| / 2, or half of
// the spacing of subnormal numbers. To this adds the error of the element's sum; both are relative to the
// largest element or to the norm. Relative to itself, an element has the error of its weight, which is a sum
// again, and of its exponential. The exponent a - m, at most 87 in float32 and 708 in float64, is rounded in
// each of its few steps (the maximum, the temperature, the logarithm of the sum); 8 roundings are enough. An
// error of the exponent is a relative error of the exponential.
ExactTolerances tolerances_of_exact(DType dtype, DType stored, const TensorSize& exact, double growth,
                                    double gradient_spacing) {
  const bool wide = dtype == DType::kFloat64, narrower = is_narrower(stored, dtype);
  const double half = narrower ? spacing(stored) / 2 : 0;
  // Half of bfloat16's smallest number, 2^-134, is negligible.
  const double smallest_half = narrower && stored == DType::kFloat16 ? 0x1p-25 : 0;
  const double delta = summed_rel_l2(dtype) * growth + gradient_spacing / 2;
  ExactTolerances out{};
  out.max_abs = (delta + half) * exact.largest + smallest_half;
  out.max_rel = half + delta + (wide ? 8 * 708 * 0x1p-53 : 8 * 87 * 0x1p-24);
  out.rel_l2 = delta + half;
  if (smallest_half > 0 && exact.norm > 0) {
    out.rel_l2 += smallest_half * std::sqrt(static_cast<double>(exact.count)) / exact.norm;
  }
  return out;
}

// A rounded logit ends on the same grid point as the exact one or on the next: the two roundings of
// stored_rel_l2().
double growth_by_rounded_logits(DType dtype, DType rounded) {
  return stored_rel_l2(summed_rel_l2(dtype), dtype, rounded) / summed_rel_l2(dtype);
}

Gate make_gate(std::string name, double value, double limit) { return {std::move(name), value, limit, value <= limit}; }

}  // namespace logitless::io
