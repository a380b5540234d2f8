// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/cost.h"

namespace logitless::planning {
namespace {

// Logits up to this size stay in a cache until they are used again.
constexpr double kCachedBytes = 16 << 20;

}  // namespace

bool keeping_pays(const source::Source& source, const GradientMatrices& outputs, int times, const RunPlan& one) {
  const auto area = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  const double logits = area(one.plan.active_rows, source.entries());
  const auto logit_bytes =
      static_cast<double>(core::sums_in_double(source.states_type()) ? sizeof(double) : sizeof(float));
  const auto sides = static_cast<double>(source.sides());
  if (sides * logit_bytes * area(one.plan.chunk_rows, source.entries()) <= kCachedBytes) return true;
  double chunk_bytes = source.head_bytes(0) * outputs.wants_d_hidden();
  for (int64_t side = 0; side < source.sides(); ++side) chunk_bytes += source.head_bytes(side);
  if (outputs.d_weight.data || outputs.weight_sink) {
    const double element = one.weight_apart ? logit_bytes : static_cast<double>(size_of(outputs.d_weight.dtype));
    chunk_bytes += 2 * element * area(source.hidden_size(), source.entries());
  }
  const double bytes = 4 * sides * logit_bytes * logits + static_cast<double>(one.chunks.size() - 2) * chunk_bytes;
  const double flops = 2 * times * logits * static_cast<double>(source.depth());
  return bytes * one.gemm->costs(source.states_type(), source.head_type()).flops_per_byte <= flops;
}

}  // namespace logitless::planning
