// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the products of a call are made of: the terms of its gradients, and what a backend packs for them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/gemm.h"
#include "logitless/plan.h"
#include "planning/context_state.h"
#include "source/source.h"

namespace logitless::planning {

using source::Source;

/// Returns of how many terms of bfloat16 the gradients of logits are made, or 0 where they have the logits'
/// type: it follows from the operands, the backend and ContextOptions::gradient_precision.
int gradient_terms(const detail::ContextState& context, const Source& source);

/// Estimates what the backend allocates by itself for one thread's logits of these sizes and the products of
/// their gradients.
size_t packing_bytes(const gemm::Backend& gemm, const Source& source, DType gradient, const source::PartSizes& sizes);

/// Fills what a plan says of its products, where gradients have `terms`, as gradient_terms() counts them.
void set_arithmetic(const gemm::Backend& gemm, const Source& source, int terms, Plan& plan);

}  // namespace logitless::planning
