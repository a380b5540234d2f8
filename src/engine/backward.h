// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of some row blocks from their token gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/forward.h"
#include "engine/row_blocks.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::engine {

/// The rows of one chunk that have a gradient.
struct ActiveBlocks {
  RowBlocks blocks;
  /// One pass: where the logits stand. Block b's are in the tiles of run block tile_block[b], row order[i]'s in row
  /// tile_row[i] of these.
  std::vector<RowBlock> tile_block;
  std::vector<int32_t> tile_row;
  int64_t chunk_begin = 0;

  bool empty() const { return blocks.blocks.empty(); }
};

/// Drops the rows of run blocks [begin, end) whose token gradients are all zero. In one pass a block keeps its tile.
ActiveBlocks active_blocks(const RunPlan& run, size_t begin, size_t end, const TokenGrads& grads);

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
