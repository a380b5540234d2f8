// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of logits and their sums, compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_gradient.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include "kernels/row_kernels.h"
#include "kernels/simd_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

template <class Sum, class Logit, class Gradient>
void set_gradients_of(TypedKernels<Sum, Logit, Gradient>& kernels) {
  kernels.gradient = gradient<Logit, Gradient>;
  kernels.add_column_sums = add_column_sums<Sum, Gradient>;
  kernels.add = add<Sum>;
  kernels.add_scaled = add_scaled<Sum>;
}
void set_gradients(RowKernels& kernels) {
  set_gradients_of(kernels.f32);
  set_gradients_of(kernels.f64);
  set_gradients_of(kernels.bf16);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
