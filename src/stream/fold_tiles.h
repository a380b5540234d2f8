// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The fold of tiles that are products, which this makes too.
#pragma once

#include <cstdint>
#include <span>

#include "plan/buffers.h"
#include "stats/statistics.h"
#include "stream/pass.h"

namespace logitless::stream {

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
