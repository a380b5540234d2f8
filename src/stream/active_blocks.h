// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Selects the rows that the backward pass processes, once the token gradients are known.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/store.h"
#include "logitless/token_stats.h"
#include "planning/run_plan.h"
#include "problem/token_problem.h"
#include "source/row_blocks.h"

namespace logitless::stream {

/// The rows of one chunk that have a gradient.
struct ActiveBlocks {
  planning::RowBlocks blocks;
  /// The stored logits of block b are in the tiles of run block tile_block[b], at the places listed in
  /// `blocks`; empty if none are stored.
  core::Array<planning::RowBlock> tile_block;
  int64_t chunk_begin = 0;  // number of tile rows before this chunk

  bool empty() const { return blocks.blocks.empty(); }
};

/// Drops the rows of run blocks [begin, end) whose token gradients are all zero. In one pass a block keeps
/// its tile. In two pass, which recomputes the logits, the remaining rows move into new tiles, at places
/// where their logits get the same bits as when the statistics were computed.
ActiveBlocks active_blocks(const problem::TokenProblem& problem, const planning::RunPlan& run, size_t begin, size_t end,
                           const TokenGrads& grads);

}  // namespace logitless::stream
