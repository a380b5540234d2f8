// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which rows of hidden make one tile, and where in it they stand.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "gemm/gemm.h"

namespace logitless::source {

/// A block is a few rows of hidden that are computed together: order[begin .. begin + count) of its
/// RowBlocks. Its tiles have more rows where the backend's RowRule asks for them: rows before the block's
/// own, or rows of zeros.
struct RowBlock {
  int64_t begin = 0;
  int64_t count = 0;
  bool contiguous = true;  // they follow one another in hidden, so nothing has to be gathered
  int64_t tile_rows = 0;   // rows of a tile, >= count
  int64_t tile_begin = 0;  // tile rows of all blocks before this one
};

/// This parts rows into pieces: rows of one piece that follow one another stand in memory at one stride.
struct RowBreaks {
  int64_t time = 0;  // rows of each sequence, where these stand apart; 0: they do not

  bool same_piece(int64_t a, int64_t b) const { return time == 0 || a / time == b / time; }
};

struct RowBlocks {
  core::Array<int64_t> order;  // rows of hidden
  core::Array<int32_t> place;  // the row of its block's tiles that each of them is, increasing in a block
  core::Array<RowBlock> blocks;
  RowBreaks breaks;

  bool all_contiguous() const;
  /// Returns whether order[begin .. begin + count) follow one another in one piece.
  bool is_run(int64_t begin, int64_t count) const;
  std::span<const int64_t> rows(const RowBlock& block) const {
    return {order.data() + block.begin, static_cast<size_t>(block.count)};
  }
  std::span<const int32_t> places(const RowBlock& block) const {
    return {place.data() + block.begin, static_cast<size_t>(block.count)};
  }
  /// Returns the tile row of the block's first row.
  int64_t first_place(const RowBlock& block) const { return place[static_cast<size_t>(block.begin)]; }
  /// Returns whether some place before the last row of a gathered block holds no row.
  bool has_holes(const RowBlock& block) const { return !block.contiguous && places(block).back() != block.count - 1; }
  /// Returns the number of tile rows of all blocks.
  int64_t tile_rows() const { return blocks.empty() ? 0 : blocks.back().tile_begin + blocks.back().tile_rows; }
};

/// Row counts of blocks are multiples of this where possible. It is the widest row count of a BLAS
/// micro-kernel, or what the rule asks for.
inline int64_t block_step(const gemm::RowRule& rule) { return rule.row_step > 4 ? rule.row_step : 16; }

/// Cuts `rows` (increasing) into blocks of at most `most_rows`. Runs that follow one another in memory become
/// blocks that need no copy; what is left of short runs is pooled into blocks that are gathered. Blocks of
/// one run have nearly equal sizes, so that no tile is a sliver.
RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule,
                          const RowBreaks& breaks);

/// Appends such blocks of `rows` to those that `out` holds, by the breaks of `out`.
void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule, RowBlocks& out);

/// Does the same for rows that have been in tiles before and keep their class: row rows[i] gets a place of
/// class classes[i] (RowRule::class_of). Places that find no row of their class stay empty. All blocks are
/// gathered.
void append_classed_blocks(std::span<const int64_t> rows, std::span<const int64_t> classes, int64_t most_rows,
                           const gemm::RowRule& rule, RowBlocks& out);

/// Appends one block of rows that have been computed before, as they stood.
void append_block(const RowBlocks& from, const RowBlock& block, RowBlocks& out);

}  // namespace logitless::source
