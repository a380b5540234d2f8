// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What is planned, and the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/store.h"
#include "gemm/gemm.h"
#include "logitless/plan.h"
#include "planning/tile_grid.h"
#include "source/row_blocks.h"

namespace logitless::planning {

using source::RowBlock;
using source::RowBlocks;
using source::RowBreaks;

/// What a call has to do, as far as planning needs to know.
struct Work {
  bool forward = true;         // statistics are computed
  bool backward = false;       // gradients are
  bool may_drop_rows = false;  // some rows' token gradients may turn out to be all zero
  /// In one pass, rows of one group stay in one chunk; these are the ids of TokenLoss::groups().
  std::span<const int64_t> groups = {};
  /// Without `forward`, this many of the rows that take part have a gradient.
  int64_t kept_rows = 0;
  /// Why d_hidden cannot be made of expected rows; empty: it can.
  std::string_view no_expected_rows = "there is no loss";
  /// A forward call leaves expected rows (TokenStats::expected), if the plan is theirs; a backward call has
  /// got them.
  bool leaves_expected_rows = false;
  bool has_expected_rows = false;
  /// Gradients are to be made of segments that are chosen: BackwardOptions.
  bool chooses_segments = false;
  /// The vocabulary entries of each slice that works by the plan; empty: there is one slice.
  std::span<const int64_t> slices = {};
};

/// Where the sums of expected rows stand.
enum class ExpectedRowsIn {
  kNone,    // the call has none
  kHidden,  // in d_hidden, or in the workspace until they become d_hidden
  kLeft,    // in the statistics that the call leaves
  kGiven,   // in those that it has got
};

/// How a call on hidden states cuts its work.
struct RunPlan {
  Plan plan;
  /// What multiplies: the context's backend, or the one for few rows.
  const gemm::Backend* gemm = nullptr;
  /// The gradients of a tile are this many terms of bfloat16, or of the logits' own type where it is 0.
  int gradient_terms = 0;
  /// What rounding gradients to a single term leaves is summed and put back, but where segments are chosen.
  bool keeps_residuals() const { return gradient_terms == 1; }
  TileGrid grid;
  RowBlocks blocks;
  /// Each chunk begins at the block of this index, and the last entry is the end. Only one pass has several
  /// chunks.
  core::Array<size_t> chunks;
  int64_t chunk_tile_rows = 0;  // most tile rows of a chunk

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
  /// The logits of a chunk stay until their gradients are made (one pass); else they are computed again.
  bool logits_stay = false;
  ExpectedRowsIn expected_rows = ExpectedRowsIn::kNone;
  /// Tiles become sums of expected rows as they are folded.
  bool sums_expected_rows() const {
    return expected_rows == ExpectedRowsIn::kHidden || expected_rows == ExpectedRowsIn::kLeft;
  }
  /// The first walk leaves the masses of segments, and gradients are made of those that are chosen.
  bool chooses_segments = false;
  /// Rows are copied together where they do not follow one another; room for that is planned.
  bool gather = false;
  /// Rows may turn out to have no gradient: Work::may_drop_rows.
  bool may_drop_rows = false;
  /// Rows of some block may not follow one another in d_hidden; room for a block's part of it is planned.
  bool scatter = false;
  /// float32 or float64 sums of d_hidden stand apart from the output until all vocabulary entries are in
  /// them. This is always so where the output is narrower than its sums.
  bool hidden_apart = false;
  /// Sums of d_weight that cannot stand in the output are those of all entries until the call ends: chunks
  /// add to them. One chunk has the sums of a few tiles.
  bool weight_apart = false;
};

/// How a call cuts its work on finished logits.
struct SweepPlan {
  Plan plan;
  /// The loss sees all rows at once, so that all logits are read before the first gradient is made. Otherwise
  /// a block of rows is folded, evaluated and turned into gradients while it is in a core's cache.
  bool all_rows_at_once = false;
};

}  // namespace logitless::planning
