// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of few rows, compiled once per Highway target, for the tables of simd.cc.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_few_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include "kernels/row_kernels.h"
#include "kernels/simd_few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

void set_few_rows(RowKernels& kernels) {
  kernels.few_rows_f32 = few_rows;
  kernels.few_rows_f64 = few_rows;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();
