// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The source and the fold of tiles that are products: row blocks of hidden times tiles of the head.
#pragma once

#include <cstdint>
#include <span>

#include "plan/buffers.h"
#include "stats/statistics.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Overwrites `tile` with the raw logits [block.tile_rows, entries] = hidden · head. `hidden` is a
/// tile_operand().
template <class Types>
void compute_logits(const Pass<Types>& pass, const plan::RowBlock& block, const gemm::Operand& hidden,
                    int64_t vocab_tile, void* gemm_scratch, typename Types::Logit* tile);

/// Folds the tiles of one chunk's blocks into `partials`, which has the segments of the grid. Where the
/// logits stay, they are in pass.chunk afterwards.
template <class Types>
void fold_tiles(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers, std::span<const plan::RowBlock> blocks,
                const stats::Partials& partials);

/// Adds to ranks[row] the vocabulary entries whose logits are larger than the target's, of rows whose
/// combined statistics `partials` holds. It follows fold_tiles() of the same blocks and buffers.
template <class Types>
void count_above_tiles(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers,
                       std::span<const plan::RowBlock> blocks, const stats::Partials& partials,
                       std::span<int64_t> ranks);

}  // namespace logitless::stream
