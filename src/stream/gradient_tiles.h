// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes the gradients of some row blocks from their token gradients, and hands them to the sinks.
#pragma once

#include "logitless/token_stats.h"
#include "planning/buffers.h"
#include "ranks/batch_sums.h"
#include "sink/sink.h"
#include "stream/active_blocks.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Makes the gradients of `active` and hands them to the sinks, which have taken their memory. `begin` is
/// true in the first call of a run that has rows; later calls add to what the first one has written.
/// Vocabulary tiles whose sums stand apart are finished here, so such a run has one chunk. `sums`, if it is
/// not null, hears which vocabulary entries have had the last of their rows.
template <class Types>
void gradient_tiles(const Pass<Types>& pass, planning::BackwardBuffers<Types>& buffers,
                    sink::Sinks<typename Types::Sum> sinks, const ActiveBlocks& active, bool begin,
                    const TokenStats& stats, const TokenGrads& grads, ranks::BatchSums* sums);

}  // namespace logitless::stream
