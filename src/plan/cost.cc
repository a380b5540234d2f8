// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

namespace logitless::plan {
namespace {

// Logits that take no more than this stay in a cache until they are used again.
constexpr double kCachedBytes = 16 << 20;

}  // namespace

bool keeping_pays(const problem::HiddenProblem& problem, const Gradients& outputs, const RunPlan& one) {
  const auto area = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  const double logits = area(one.plan.active_rows, problem.entries);
  const auto logit_bytes = static_cast<double>(problem.in_double() ? sizeof(double) : sizeof(float));
  if (logit_bytes * area(one.plan.chunk_rows, problem.entries) <= kCachedBytes) return true;
  const double head = area(problem.hidden_size, problem.entries);
  double chunk_bytes = static_cast<double>(size_of(problem.head.weight.dtype)) * (1 + outputs.wants_d_hidden());
  if (outputs.d_weight.data) chunk_bytes += 2 * static_cast<double>(size_of(outputs.d_weight.dtype));
  const double bytes = 4 * logit_bytes * logits + static_cast<double>(one.chunks.size() - 2) * chunk_bytes * head;
  const double flops = 2 * logits * static_cast<double>(problem.hidden_size);
  return bytes * one.gemm->flops_per_byte(problem.hidden.dtype, problem.head.weight.dtype) <= flops;
}

}  // namespace logitless::plan
