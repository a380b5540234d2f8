// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The kernels for the largest logits, compiled once per Highway target, with a separate table.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_top.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/simd_tables.h"
#include "kernels/simd_top-inl.h"
#include "kernels/top_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

const TopKernels* top_table() {
  static const TopKernels kKernels = {
      hwy::TargetName(HWY_TARGET), {top<float>, cap<float>}, {top<double>, cap<double>}};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitless::kernels {

HWY_EXPORT(top_table);

const TopKernels& top_kernels_of(std::string_view name) {
  return find_table(HWY_DISPATCH_TABLE(top_table), name, plain_top_kernels());
}

}  // namespace logitless::kernels
#endif  // HWY_ONCE
