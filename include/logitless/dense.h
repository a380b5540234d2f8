// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The materialised baseline, ContextOptions::plan = PlanKind::kDense: it runs one multi-threaded
/// GEMM into an [N, V] buffer, the same row kernels in place, and two GEMMs back. Gradient checks and
/// benchmarks compare with it, for every loss. It computes every row, ignored ones too, as lm_head + loss
/// does.
///
/// The contracts of the calls hold under it, with these exceptions: the workspace is N · V logits whatever
/// the budget, and N · H more for hidden states whose sequences stand apart, which are
/// copied together, and as much for such a d_hidden; a weight sink is an InvalidInput; a NaN in an ignored
/// row of hidden reaches d_weight (0 · NaN); the bits may depend on the number of threads, as they do in any
/// BLAS.
#pragma once

#include "logitless/cross_entropy.h"

namespace logitless {

/// Runs cross_entropy() under the plan kDense, whatever the context's plan is. It makes a Context for that; a
/// caller in a loop makes one of plan kDense once, and calls cross_entropy().
LOGITLESS_API CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden,
                                                     const LmHead& head, const Targets& targets,
                                                     const CrossEntropyOptions& options = {},
                                                     const Gradients& gradients = {});

}  // namespace logitless
