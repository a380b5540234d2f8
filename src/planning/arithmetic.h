// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The arithmetic of a call's products: the terms of its gradients, and the memory that a backend packs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/gemm.h"
#include "logitless/plan.h"
#include "planning/context_state.h"
#include "source/source.h"

namespace logitless::planning {

using source::Source;

/// Returns the number of bfloat16 terms of the gradients of logits, or 0 if they have the logits' type.
/// Depends on the operands, the backend and ContextOptions::gradient_precision.
int gradient_terms(const detail::ContextState& context, const Source& source);

/// Estimates the memory that the backend itself allocates for one thread's logits of these sizes and for
/// their gradient products.
size_t internal_bytes(const gemm::Backend& gemm, const Source& source, DType gradient, const source::PartSizes& sizes);

/// Fills the plan's fields about its products; `terms` is gradient_terms().
void set_arithmetic(const gemm::Backend& gemm, const Source& source, int terms, Plan& plan);

}  // namespace logitless::planning
