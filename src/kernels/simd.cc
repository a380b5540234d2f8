// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The row kernels, compiled once for every instruction set that Highway knows on this architecture.
// They use no intrinsic and no compiler flag, so a new instruction set takes only a newer Highway.
#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // Without it Highway leaves its best x86 target out.
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/row_kernels.h"
#include "kernels/simd_convert-inl.h"
#include "kernels/simd_few_rows-inl.h"
#include "kernels/simd_fold-inl.h"
#include "kernels/simd_gradient-inl.h"
#include "kernels/simd_tables.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

const RowKernels* table() {
  static const RowKernels kKernels = {
      hwy::TargetName(HWY_TARGET),
      {fold<float>, count_above<float>, gradient<float, float>, add_column_sums<float, float>, add<float>,
       add_scaled<float>},
      {fold<double>, count_above<double>, gradient<double, double>, add_column_sums<double, double>, add<double>,
       add_scaled<double>},
      {fold<float>, count_above<float>, gradient<float, bfloat16>, add_column_sums<float, bfloat16>, add<float>,
       add_scaled<float>},
      few_rows,
      few_rows,
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

std::vector<const RowKernels*> simd_kernels() {
  std::vector<const RowKernels*> out;
  visit_tables(HWY_DISPATCH_TABLE(table), [&](const RowKernels& kernels) {
    out.push_back(&kernels);
    return false;
  });
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
