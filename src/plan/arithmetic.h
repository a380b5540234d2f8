// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the products of a call are made of: the terms of its gradients, and what a backend packs for them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/gemm.h"
#include "logitless/plan.h"
#include "plan/context_state.h"
#include "problem/hidden_problem.h"

namespace logitless::plan {

using problem::HiddenProblem;

/// Returns of how many terms of bfloat16 the gradients of logits are made, or 0 where they have the logits'
/// type: it follows from the operands, the backend and ContextOptions::gradient_precision.
int gradient_terms(const detail::ContextState& context, const HiddenProblem& problem);

/// The sizes of a product that is logits: hidden [rows, depth] · head [depth, entries].
struct ProductSizes {
  int64_t rows, entries, depth;
};
/// Estimates what the backend allocates by itself for one thread's logits of these sizes and the products of
/// their gradients, which write so many components of d_hidden and d_weight at once.
size_t packing_bytes(const gemm::Backend& gemm, const HiddenProblem& problem, DType gradient, const ProductSizes& sizes,
                     int64_t hidden_block, int64_t weight_block);

/// Fills what a plan says of its products, where gradients have `terms`, as gradient_terms() counts them.
void set_arithmetic(const gemm::Backend& gemm, const HiddenProblem& problem, int terms, Plan& plan);

}  // namespace logitless::plan
