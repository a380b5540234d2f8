// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This cuts rows, vocabulary and hidden into tiles: how large these are follows from shapes, options and what
// the budget leaves room for.
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

/// This cuts rows, vocabulary and hidden into tiles and blocks.
struct TileGrid {
  int64_t vocab_size = 0;  // entries that are cut: those of one slice, where ranks share them
  int64_t hidden_size = 0;
  int64_t row_tile = 0;      // most rows of hidden that a tile is made for
  int64_t tile_rows = 0;     // most rows that a tile has: row_tile, as row_rule pads it
  int64_t vocab_tile = 0;    // columns of a tile; the last one may be narrower
  int64_t tile_stride = 0;   // elements from one row of a tile to the next
  int64_t hidden_block = 0;  // components of d_hidden that one GEMM writes
  int64_t weight_block = 0;  // components of d_weight that one GEMM writes
  int64_t stretches = 0;     // parts of the vocabulary whose statistics are folded by one task
  gemm::RowRule row_rule;    // of the products that are logits

  int64_t vocab_tiles() const { return core::div_up(vocab_size, vocab_tile); }
  int64_t first_entry(int64_t tile) const { return tile * vocab_tile; }
  int64_t entries(int64_t tile) const { return std::min(vocab_tile, vocab_size - first_entry(tile)); }
  /// Stretch s holds the tiles [stretch_begin(s), stretch_begin(s + 1)).
  int64_t stretch_begin(int64_t s) const { return s * vocab_tiles() / stretches; }
};

/// The largest tiles that a budget leaves room for, below those of the table.
struct TileCap {
  int64_t rows = kMostTileEdge;
  int64_t entries = kMostTileEdge;
};

/// Returns the row rule of the smallest products that are logits. Tiles have the same class_rows, and the
/// same row_step up to the row count that gemm::Backend::row_rule() names.
gemm::RowRule any_row_rule(const gemm::Backend& gemm, const Source& source);

/// What becomes of a tile of logits.
enum class TileUse {
  kStatistics,  ///< nothing beside statistics: tiles of many rows are higher
  kGradients,   ///< gradients, in its place
  kKept         ///< gradients, once the tiles of the whole chunk are there (one pass)
};

/// Sets the edges of tiles, none above the cap, for blocks of `rows` of the `all_rows` that take part.
void set_grid(const ContextOptions& options, const gemm::Backend& gemm, const TileCap& cap, const Source& source,
              TileUse use, int64_t rows, int64_t all_rows, TileGrid& grid);
/// Lets tiles begin at segments of kernels::kSegment entries.
void widen_to_segments(TileGrid& grid);
/// Sets the rule that holds for all tiles of the vocabulary, the last and narrower one of each of the slices
/// too (Work::slices).
void set_row_rule(const gemm::Backend& gemm, const Source& source, std::span<const int64_t> slices, TileGrid& grid);
/// Where d_weight is not summed in its output, this many vocabulary tiles have sums at a time: one fills
/// while the other is written out.
inline constexpr int64_t kWeightTiles = 2;
/// Splits hidden components so that there are enough chains of sums for a team: `row_blocks` of d_hidden and
/// `weight_tiles` of d_weight can be summed at the same time.
void set_splits(int64_t row_blocks, int64_t weight_tiles, TileGrid& grid);

/// Makes `cap` the tiles of `grid` with the longer edge that the caller has not fixed halved; returns false
/// when both are as small as they get.
bool halve_tiles(const ContextOptions& options, const TileGrid& grid, TileCap& cap);

}  // namespace logitless::planning
