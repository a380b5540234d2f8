// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This chooses the rows that the backward pass works on, once the token gradients are known.
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
  /// In one pass, block b's logits stand in the tiles of run block tile_block[b], at the places that `blocks`
  /// names.
  core::Array<planning::RowBlock> tile_block;
  int64_t chunk_begin = 0;  // tile rows of the run before the chunk

  bool empty() const { return blocks.blocks.empty(); }
};

/// Drops the rows of run blocks [begin, end) whose token gradients are all zero. In one pass a block keeps
/// its tile. In two pass, which computes the logits again, the rows that are left move into new tiles, at
/// places where their logits have the same bits as those that the statistics came from.
ActiveBlocks active_blocks(const problem::TokenProblem& problem, const planning::RunPlan& run, size_t begin, size_t end,
                           const TokenGrads& grads);

}  // namespace logitless::stream
