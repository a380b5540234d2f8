// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which rows of hidden form a tile, and at which row of the tile each is.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "gemm/gemm.h"

namespace logitless::source {

/// A block is a few rows of hidden that are computed together: order[begin .. begin + count) of its
/// RowBlocks. Its tiles have additional rows if the backend's RowRule requires them: rows before the block's
/// own, or zeros.
struct RowBlock {
  int64_t begin = 0;
  int64_t count = 0;
  bool contiguous = true;  // the rows are consecutive in hidden and need not be gathered
  int64_t tile_rows = 0;   // rows per tile, >= count
  int64_t tile_begin = 0;  // number of tile rows in all blocks before this one
};

/// Where consecutive rows are not evenly spaced in memory.
struct RowBreaks {
  int64_t time = 0;  // rows per sequence, if sequences are apart in memory; 0: they are not

  bool evenly_spaced(int64_t a, int64_t b) const { return time == 0 || a / time == b / time; }
};

struct RowBlocks {
  core::Array<int64_t> order;  // row numbers in hidden
  core::Array<int32_t> place;  // per row, its place in its block's tiles; increasing within a block
  core::Array<RowBlock> blocks;
  RowBreaks breaks;

  bool all_contiguous() const;
  /// Returns whether order[begin .. begin + count) are consecutive, evenly spaced rows.
  bool is_run(int64_t begin, int64_t count) const;
  std::span<const int64_t> rows(const RowBlock& block) const {
    return {order.data() + block.begin, static_cast<size_t>(block.count)};
  }
  std::span<const int32_t> places(const RowBlock& block) const {
    return {place.data() + block.begin, static_cast<size_t>(block.count)};
  }
  /// Returns the tile row of the block's first row.
  int64_t first_place(const RowBlock& block) const { return place[static_cast<size_t>(block.begin)]; }
  /// Returns whether a gathered block has an empty place before its last row.
  bool has_holes(const RowBlock& block) const { return !block.contiguous && places(block).back() != block.count - 1; }
  /// Returns the number of tile rows in all blocks.
  int64_t tile_rows() const { return blocks.empty() ? 0 : blocks.back().tile_begin + blocks.back().tile_rows; }
};

/// Row counts of blocks are multiples of this if possible: the largest row count of a BLAS micro-kernel, or
/// the rule's step.
inline int64_t block_step(const gemm::RowRule& rule) { return rule.row_step > 4 ? rule.row_step : 16; }

/// Divides `rows` (increasing) into blocks of at most `most_rows`. Long runs of rows that are consecutive in
/// memory become blocks that need no copy; short runs are pooled into blocks that are gathered. The blocks of
/// one run have nearly equal sizes, so that no tile is very small.
RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule,
                          const RowBreaks& breaks);

/// Appends such blocks for `rows` to `out`, using the breaks of `out`.
void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule, RowBlocks& out);

/// Appends blocks for rows that were in tiles before and must keep their class: row rows[i] gets a place of
/// class classes[i] (RowRule::class_of). Places without a row of their class stay empty. All blocks are
/// gathered.
void append_classed_blocks(std::span<const int64_t> rows, std::span<const int64_t> classes, int64_t most_rows,
                           const gemm::RowRule& rule, RowBlocks& out);

/// Appends a copy of `block`, a block of `from`, with the same places.
void append_block(const RowBlocks& from, const RowBlock& block, RowBlocks& out);

}  // namespace logitless::source
