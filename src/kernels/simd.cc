// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tables of row kernels, one for each enabled Highway target of this architecture. The kernels are
// written in Highway's operations, without CPU intrinsics or -m flags, so support for a new instruction set
// requires only a newer Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/row_kernels.h"
#include "kernels/simd_convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitless::kernels {
namespace HWY_NAMESPACE {

void set_folds(RowKernels& kernels);        // simd_fold.cc
void set_gradients(RowKernels& kernels);    // simd_gradient.cc
void set_divergences(RowKernels& kernels);  // simd_divergence.cc
void set_draws(RowKernels& kernels);        // simd_draw.cc
void set_few_rows(RowKernels& kernels);     // simd_few_rows.cc
void set_unpacks(RowKernels& kernels);      // simd_unpack.cc

RowKernels make_table() {
  RowKernels kernels;
  kernels.name = hwy::TargetName(HWY_TARGET);
  set_folds(kernels);
  set_gradients(kernels);
  set_divergences(kernels);
  set_draws(kernels);
  set_few_rows(kernels);
  set_unpacks(kernels);
  kernels.widen_bf16 = widen_bf16;
  kernels.round_bf16 = round_bf16;
  kernels.widen_f16 = widen_f16;
  kernels.round_f16 = round_f16;
  return kernels;
}

const RowKernels* table() {
  static const RowKernels kKernels = make_table();
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace logitless::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitless::kernels {

HWY_EXPORT(table);

// Highway's own dispatch makes one choice per process, but each Context chooses separately.
std::vector<const RowKernels*> simd_kernels() {
  std::vector<const RowKernels*> out;
  for (int64_t targets = hwy::SupportedTargets() & HWY_TARGETS; targets != 0; targets &= targets - 1) {
    hwy::ChosenTarget chosen;
    chosen.Update(targets & -targets);  // a lower bit is a better target
    out.push_back(HWY_DISPATCH_TABLE(table)[chosen.GetIndex()]());
  }
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
