// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Computes the gradients of row blocks from their token gradients, and passes them to the sinks.
#pragma once

#include "logitless/token_stats.h"
#include "planning/buffers.h"
#include "ranks/batch_sums.h"
#include "sink/sink.h"
#include "stream/active_blocks.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Computes the gradients of `active` and passes them to the sinks, which have taken their memory. `begin` is
/// true in the first call of a run that has rows; later calls add to the results of the first. Vocabulary
/// tiles whose sums are stored apart from the output are finished here, so such a run has a single chunk.
/// `sums`, unless null, is notified when all rows of vocabulary entries are done.
template <class Types>
void gradient_tiles(const Pass<Types>& pass, planning::BackwardBuffers<Types>& buffers,
                    sink::Sinks<typename Types::Sum> sinks, const ActiveBlocks& active, bool begin,
                    const TokenStats& stats, const TokenGrads& grads, ranks::BatchSums* sums);

}  // namespace logitless::stream
