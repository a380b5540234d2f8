// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of some row blocks from their token gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/active_blocks.h"
#include "engine/forward.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::engine {

/// Writes (`begin`: the first call of a run that has rows) or adds the gradients of `active`. Tiles of d_weight that
/// are summed apart are finished here, so such a run has one chunk; a narrow d_bias is finished by finish_backward().
template <class T>
void run_backward(const Pass<T>& pass, BackwardBuffers<T>& buffers, const ActiveBlocks& active, bool begin,
                  const TokenStats& stats, const TokenGrads& grads, const Gradients& outputs);

/// What is left after the last chunk: the rounding of d_bias, and zeros where no row had anything to write.
/// `wrote_rows` [N]: rows of d_hidden that run_backward() has written; `wrote_any`: it was called with rows.
template <class T>
void finish_backward(const Pass<T>& pass, BackwardBuffers<T>& buffers, const std::vector<bool>& wrote_rows,
                     bool wrote_any, const Gradients& outputs);

}  // namespace logitless::engine
