// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes the gradients of some row blocks from their token gradients, and hands them to the sinks:
// d_hidden, d_weight or its callback, and d_bias.
#pragma once

#include "core/store.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"
#include "plan/buffers.h"
#include "stream/active_blocks.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Makes the gradients of `active`. `begin` is true in the first call of a run that has rows; later calls add
/// to the d_weight and d_bias that it writes. Tiles of d_weight that are summed apart are finished here, so
/// such a run has one chunk; a narrow d_bias is finished by finish_gradients().
template <class Types>
void gradient_tiles(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers, const ActiveBlocks& active,
                    bool begin, const TokenStats& stats, const TokenGrads& grads, const Gradients& outputs);

/// Does what is left after the last chunk: it rounds d_bias, and writes zeros where no row had anything to
/// write. `wrote_rows` [N] marks the rows of d_hidden that gradient_tiles() has written; `wrote_any` says
/// that it was called with rows.
template <class Types>
void finish_gradients(const Pass<Types>& pass, plan::BackwardBuffers<Types>& buffers,
                      const core::Array<bool>& wrote_rows, bool wrote_any, const Gradients& outputs);

}  // namespace logitless::stream
