// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/arithmetic.h"

#include <algorithm>

namespace logitless::planning {

size_t internal_bytes(const gemm::Backend& gemm, const Source& source, DType gradient, const source::PartSizes& sizes) {
  const auto bytes = [&](const source::ProductShape& p) { return gemm.internal_bytes(p.m, p.n, p.k, p.a, p.b); };
  return std::max(source.most_of_logits(sizes.rows, sizes.entries, bytes),
                  source.most_of_gradients(sizes, gradient, bytes));
}

int gradient_terms(const detail::ContextState& context, const Source& source) {
  const DType hidden = source.states_type(), weight = source.head_type();
  // If the backend widens bfloat16, narrow gradients would lose digits and save nothing.
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

void set_arithmetic(const gemm::Backend& gemm, const Source& source, int terms, Plan& plan) {
  plan.gemm_library = gemm.library_of(source.states_type(), source.head_type());
  plan.gradient_dtype = core::sums_in_double(source.states_type()) ? DType::kFloat64
                        : terms > 0                                ? DType::kBFloat16
                                                                   : DType::kFloat32;
  plan.gradient_terms = std::max(1, terms);
}

}  // namespace logitless::planning
