// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Folds and counts, compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_fold.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include "kernels/row_kernels.h"
#include "kernels/simd_fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

template <class Sum, class Logit, class Gradient>
void set_folds_of(TypedKernels<Sum, Logit, Gradient>& kernels) {
  kernels.fold = fold<Logit>;
  kernels.count_above = count_above<Logit>;
}
void set_folds(RowKernels& kernels) {
  set_folds_of(kernels.f32);
  set_folds_of(kernels.f64);
  set_folds_of(kernels.bf16);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
