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

void set_gradients(RowKernels& kernels) {
  kernels.for_each_type([]<class Sum, class Logit, class Gradient>(TypedKernels<Sum, Logit, Gradient>& typed) {
    typed.gradient = gradient<Logit, Gradient>;
    typed.add_column_sums = add_column_sums<Sum, Gradient>;
    typed.add = add<Sum>;
    typed.add_scaled = add_scaled<Sum>;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
