// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The row kernels of two heads, compiled once per Highway target, with a separate table.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_divergence.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/divergence_kernels.h"
#include "kernels/simd_divergence-inl.h"
#include "kernels/simd_tables.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

const DivergenceKernels* divergence_table() {
  static const DivergenceKernels kKernels = {
      hwy::TargetName(HWY_TARGET),
      {fold_divergence<float>, gradient_divergence<float, float>},
      {fold_divergence<double>, gradient_divergence<double, double>},
      {fold_divergence<float>, gradient_divergence<float, bfloat16>},
  };
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitless::kernels {

HWY_EXPORT(divergence_table);

std::vector<const DivergenceKernels*> simd_divergence_kernels() {
  std::vector<const DivergenceKernels*> out;
  visit_tables(HWY_DISPATCH_TABLE(divergence_table), [&](const DivergenceKernels& table) {
    out.push_back(&table);
    return false;
  });
  return out;
}

const DivergenceKernels& divergence_kernels(const RowKernels& kernels) {
  return find_table(HWY_DISPATCH_TABLE(divergence_table), kernels.name, plain_divergence_kernels());
}

}  // namespace logitless::kernels
#endif  // HWY_ONCE
