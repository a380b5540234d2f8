// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The materialised baseline: one multi-threaded GEMM into an [N, V] buffer, the same row kernels in place, two GEMMs
/// back. What gradient checks and benchmarks compare with. It computes every row, ignored ones too, as lm_head + loss
/// does.
#pragma once

#include "logitless/cross_entropy.h"

namespace logitless {

/// The contract of cross_entropy(), but for the workspace (N · V logits whatever the budget) and the weight sink, which
/// is an InvalidInput here, as are hidden states in two matrices. Two more exceptions: a NaN in an ignored row of
/// hidden reaches d_weight (0 · NaN), and the bits may depend on the number of threads, as they do in any BLAS.
LOGITLESS_API CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden,
                                                     const LmHead& head, const Targets& targets,
                                                     const CrossEntropyOptions& options = {},
                                                     const Gradients& gradients = {});

}  // namespace logitless
