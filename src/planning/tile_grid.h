// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Divides rows, vocabulary and hidden components into tiles. Their sizes depend on shapes, options and the
// budget.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/integers.h"
#include "gemm/gemm.h"
#include "logitless/context.h"
#include "problem/hidden_problem.h"
#include "source/source.h"

namespace logitless::planning {

using problem::HiddenProblem;
using source::Source;

/// The tiles and blocks of rows, vocabulary and hidden components.
struct TileGrid {
  int64_t vocab_size = 0;  // entries to divide; with ranks the entries of one slice
  int64_t hidden_size = 0;
  int64_t row_tile = 0;      // maximum rows of hidden per tile
  int64_t tile_rows = 0;     // maximum rows per tile, padding of row_rule included
  int64_t vocab_tile = 0;    // columns of a tile; the last one may be narrower
  int64_t tile_stride = 0;   // elements from one row of a tile to the next
  int64_t hidden_block = 0;  // components of d_hidden that one GEMM writes
  int64_t weight_block = 0;  // components of d_weight that one GEMM writes
  int64_t vocab_ranges = 0;  // parts of the vocabulary, each folded into statistics by one task
  gemm::RowRule row_rule;    // of the products that compute logits

  int64_t vocab_tiles() const { return core::div_up(vocab_size, vocab_tile); }
  int64_t first_entry(int64_t tile) const { return tile * vocab_tile; }
  int64_t entries(int64_t tile) const { return std::min(vocab_tile, vocab_size - first_entry(tile)); }
  /// Returns the sizes of the parts of gradients.
  source::PartSizes part_sizes() const { return {row_tile, vocab_tile, hidden_block, weight_block}; }
  /// Range s holds the tiles [vocab_range_begin(s), vocab_range_begin(s + 1)).
  int64_t vocab_range_begin(int64_t s) const { return s * vocab_tiles() / vocab_ranges; }
};

/// Upper bounds of tiles, below the table's sizes, for small budgets.
struct TileCap {
  int64_t rows = kMostTileEdge;
  int64_t entries = kMostTileEdge;
};

/// Returns the row rule of the smallest products that compute logits. All tiles have its class_rows, and its
/// row_step up to the row count that gemm::Backend::row_rule() documents.
gemm::RowRule any_row_rule(const gemm::Backend& gemm, const Source& source);

/// How a tile of logits is used.
enum class TileUse {
  kStatistics,  ///< only for statistics: tiles of many rows are taller
  kGradients,   ///< gradients replace it
  kKept         ///< gradients replace it once the chunk's tiles are complete (one pass)
};

/// Returns a grid with the tile sizes, within the cap, for blocks of `rows` rows out of `all_rows` active
/// ones.
TileGrid make_grid(const ContextOptions& options, const gemm::Backend& gemm, const TileCap& cap, const Source& source,
                   TileUse use, int64_t rows, int64_t all_rows);
/// Rounds the vocabulary tile up to segments of kernels::kSegment entries.
void widen_to_segments(TileGrid& grid);
/// Sets the row rule that holds for all vocabulary tiles, including the narrower last one of each slice
/// (Computation::slices).
void set_row_rule(const gemm::Backend& gemm, const Source& source, std::span<const int64_t> slices, TileGrid& grid);
/// If d_weight is not summed in its output, this many vocabulary tiles have sums at a time: one is summed
/// while the other is written out.
inline constexpr int64_t kWeightTiles = 2;
/// Splits hidden components so that a team has enough chains of sums, given that `row_blocks` chains of
/// d_hidden and `weight_tiles` chains of d_weight can run at the same time.
void set_splits(const gemm::Costs& costs, int64_t row_blocks, int64_t weight_tiles, TileGrid& grid);

/// Sets `cap` to the tiles of `grid`, with the longer edge that the caller has not set halved; returns false
/// if both have the smallest size.
bool halve_tiles(const ContextOptions& options, const TileGrid& grid, TileCap& cap);

}  // namespace logitless::planning
