// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The input of planning, and the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/matrices.h"
#include "core/store.h"
#include "gemm/gemm.h"
#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/tile_grid.h"
#include "problem/hidden_problem.h"
#include "source/row_blocks.h"
#include "source/source.h"

namespace logitless::planning {

using source::RowBlock;
using source::RowBlocks;
using source::RowBreaks;

struct RunPlan;

/// What a call computes, as far as planning depends on it.
struct Computation {
  bool forward = true;         // statistics are computed
  bool backward = false;       // gradients are computed
  bool may_drop_rows = false;  // some rows' token gradients may turn out to be all zero
  /// The ids of TokenLoss::groups(): one pass keeps the rows of a group in one chunk.
  std::span<const int64_t> groups = {};
  /// Without `forward`: the number of rows that have a gradient.
  int64_t kept_rows = 0;
  /// Plan kExpectedRow can compute d_hidden, or in forward() the expected rows that backward() needs for it.
  bool expected_rows = false;
  /// Gradients may be approximated by a choice of segments of the vocabulary (BackwardOptions), in two pass.
  bool approximates = false;
  /// The vocabulary entries of each slice that runs the plan; empty: a single slice.
  std::span<const int64_t> slices = {};
  /// Returns the workspace of a run of the call by taking its memory from a measuring arena.
  size_t (*workspace_of)(const detail::ContextState& context, const problem::HiddenProblem& problem,
                         const source::Source& source, const GradientMatrices& outputs, const RunPlan& run) = nullptr;
};

/// How a call on hidden states divides its work.
struct RunPlan {
  Plan plan;
  bool forward = true;    // Computation::forward
  bool backward = false;  // Computation::backward
  /// The context's backend, or the one for few rows.
  const gemm::Backend* gemm = nullptr;
  /// The number of bfloat16 terms of a tile's gradients; 0: they have the logits' type.
  int gradient_terms = 0;
  /// With one bfloat16 term, rounding residuals are corrected, except in sampled and certified mode.
  bool keeps_residuals() const { return gradient_terms == 1; }
  TileGrid grid;
  RowBlocks blocks;
  /// The index of the first block of each chunk, followed by the number of blocks. One pass may have several
  /// chunks, and so may forward only with lists of largest logits.
  core::Array<size_t> chunks;
  int64_t chunk_tile_rows = 0;  // largest number of tile rows in a chunk

  int64_t chunk_count() const { return static_cast<int64_t>(chunks.size()) - 1; }
  std::span<const RowBlock> blocks_of(int64_t chunk) const {
    const auto c = static_cast<size_t>(chunk);
    return std::span(blocks.blocks).subspan(chunks[c], chunks[c + 1] - chunks[c]);
  }
  /// Returns the rows of a chunk, in the order of its blocks.
  std::span<const int64_t> rows_of(int64_t chunk) const {
    const std::span<const RowBlock> of_chunk = blocks_of(chunk);
    if (of_chunk.empty()) return {};
    const int64_t begin = of_chunk.front().begin, end = of_chunk.back().begin + of_chunk.back().count;
    return std::span(blocks.order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  /// The logits of a chunk are stored until their gradients are computed (one pass), not recomputed.
  bool keeps_logits() const { return plan.kind == PlanKind::kOnePass; }
  /// Two pass: the first vocabulary tiles, whose logits are stored all the same. No bits depend on it.
  int64_t spare_tiles = 0;
  int64_t stored_tiles() const { return keeps_logits() ? grid.vocab_tiles() : spare_tiles; }
  bool stores(int64_t vocab_tile) const { return vocab_tile < stored_tiles(); }
  /// Gradients of states come from expected rows: summed by the first walk, or by the forward half of a call.
  bool expected_rows() const { return plan.kind == PlanKind::kExpectedRow; }
  /// Computation::approximates. If exact gradients turn out to be cheaper, they are computed.
  bool approximates = false;
  /// Rows that are not consecutive are copied together; memory for that is planned.
  bool gather = false;
  /// Rows may turn out to have no gradient: Computation::may_drop_rows.
  bool may_drop_rows = false;
  /// Rows of a block may not be consecutive in d_hidden; memory for a block's part of it is planned.
  bool scatter = false;
  /// float32 or float64 sums of d_hidden are separate from the output until all vocabulary entries are
  /// summed. Always so if the output is narrower than its sums.
  bool hidden_apart = false;
  /// Sums of d_weight that cannot be in the output cover all entries until the call ends, and chunks add to
  /// them. With one chunk the sums cover only a few tiles.
  bool weight_apart = false;
};

/// How a call on finished logits divides its work.
struct LogitsPlan {
  Plan plan;
  /// The loss needs all rows at once, so all logits are read before the first gradient is computed. Otherwise
  /// a block of rows is folded, evaluated and turned into gradients while it is in a core's cache.
  bool all_rows_at_once = false;
};

}  // namespace logitless::planning
