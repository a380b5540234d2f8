// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The walk over tiles that a source computes.
#pragma once

#include <cstdint>
#include <span>

#include "fold/folds.h"
#include "stream/pass.h"
#include "stream/tile_buffers.h"

namespace logitless::stream {

/// Visits all tiles of one chunk's blocks, passes each to the folds of the walk, and combines their partials.
/// If logits are stored, they are in pass.chunk after the first walk; if not, the second walk recomputes
/// them.
template <class Types>
void walk_tiles(const Pass<Types>& pass, ForwardBuffers<Types>& buffers, std::span<const planning::RowBlock> blocks,
                const fold::CallFolds<Types>& folds, fold::Walk walk, stats::Columns& columns);

}  // namespace logitless::stream
