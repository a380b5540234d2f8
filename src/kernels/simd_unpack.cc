// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The kernels that unpack rows, compiled once per Highway target, with a separate table.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_unpack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/simd_tables.h"
#include "kernels/simd_unpack-inl.h"
#include "kernels/unpack_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

const UnpackKernels* unpack_table() {
  static const UnpackKernels kKernels = {hwy::TargetName(HWY_TARGET), int8_row,          int8_group,
                                         unpack<Q4_0Block>,           unpack<Q8_0Block>, unpack<Q4_KBlock>,
                                         unpack<Q5_KBlock>,           unpack<Q6_KBlock>, nf4};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitless::kernels {

HWY_EXPORT(unpack_table);

const UnpackKernels& unpack_kernels_of(std::string_view name) {
  return find_table(HWY_DISPATCH_TABLE(unpack_table), name, plain_unpack_kernels());
}

}  // namespace logitless::kernels
#endif  // HWY_ONCE
