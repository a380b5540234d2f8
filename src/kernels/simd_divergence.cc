// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The row kernels of two heads, compiled once for every instruction set that Highway knows. They stand apart
// from simd.cc, which is the longest compile of the library already.
#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // Without it Highway leaves its best x86 target out.
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd_divergence.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

#include <string_view>

#include "kernels/divergence_kernels.h"
#include "kernels/simd_divergence-inl.h"

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

namespace {

// Calls visit(table) for each table of this CPU, best first, until it returns true. Calls that a caller makes
// get here, so nothing is allocated.
template <class Visit>
void visit_tables(const Visit& visit) {
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  while (targets != 0) {
    const int64_t best = targets & -targets;  // A lower bit is a better target.
    hwy::ChosenTarget chosen;
    chosen.Update(best);
    if (visit(*HWY_DISPATCH_TABLE(divergence_table)[chosen.GetIndex()]())) return;
    targets &= targets - 1;
  }
}

}  // namespace

std::vector<const DivergenceKernels*> simd_divergence_kernels() {
  std::vector<const DivergenceKernels*> out;
  visit_tables([&](const DivergenceKernels& table) {
    out.push_back(&table);
    return false;
  });
  return out;
}

const DivergenceKernels& divergence_kernels(const RowKernels& kernels) {
  const DivergenceKernels* found = &plain_divergence_kernels();
  visit_tables([&](const DivergenceKernels& table) {
    const bool same = std::string_view(table.name) == kernels.name;
    if (same) found = &table;
    return same;
  });
  return *found;
}

}  // namespace logitless::kernels
#endif  // HWY_ONCE
