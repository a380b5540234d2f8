// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "plan/arithmetic.h"

#include <algorithm>

namespace logitless::plan {

size_t packing_bytes(const gemm::Backend& gemm, const HiddenProblem& problem, DType gradient, const ProductSizes& sizes,
                     int64_t hidden_block, int64_t weight_block) {
  const DType hidden = problem.hidden.dtype, weight = problem.head.weight.dtype;
  const auto [rows, entries, depth] = sizes;
  const size_t d_weight = problem.head.layout == HeadLayout::kHiddenVocab
                              ? gemm.packing_bytes(weight_block, entries, rows, hidden, gradient)
                              : gemm.packing_bytes(entries, weight_block, rows, gradient, hidden);
  return std::max({gemm.packing_bytes(rows, entries, depth, hidden, weight),
                   gemm.packing_bytes(rows, hidden_block, entries, gradient, weight), d_weight});
}

int gradient_terms(const detail::ContextState& context, const HiddenProblem& problem) {
  const DType hidden = problem.hidden.dtype, weight = problem.head.weight.dtype;
  // Where a backend widens bfloat16, narrow gradients would lose digits and save nothing.
  if (hidden != DType::kBFloat16 || weight != DType::kBFloat16 || !context.gemm->reads(hidden, weight)) return 0;
  switch (context.options.gradient_precision) {
    case GradientPrecision::kNative:
      return 1;
    case GradientPrecision::kSplit:
      return 2;
    case GradientPrecision::kFloat32:
      break;
  }
  return 0;
}

void set_arithmetic(const gemm::Backend& gemm, const HiddenProblem& problem, int terms, Plan& plan) {
  plan.gemm_library = gemm.library_of(problem.hidden.dtype, problem.head.weight.dtype);
  plan.gradient_dtype = problem.in_double() ? DType::kFloat64 : terms > 0 ? DType::kBFloat16 : DType::kFloat32;
  plan.gradient_terms = std::max(1, terms);
}

}  // namespace logitless::plan
