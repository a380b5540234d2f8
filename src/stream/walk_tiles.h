// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The walk over tiles that are products: row blocks of hidden times tiles of the head.
#pragma once

#include <cstdint>
#include <span>

#include "plan/buffers.h"
#include "stats/folds.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Overwrites `tile` with the raw logits [block.tile_rows, entries] = hidden · head. `hidden` is a
/// tile_operand().
template <class Types>
void compute_logits(const Pass<Types>& pass, const plan::RowBlock& block, const gemm::Operand& hidden,
                    int64_t vocab_tile, void* gemm_scratch, typename Types::Logit* tile);

/// Visits all tiles of one chunk's blocks, hands each to the folds of the walk, and combines their partials.
/// Where the logits stay, they are in pass.chunk after the first walk; else the second one makes them again.
template <class Types>
void walk_tiles(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers, std::span<const plan::RowBlock> blocks,
                const stats::CallFolds<Types>& folds, stats::Walk walk, stats::Columns& columns);

}  // namespace logitless::stream
