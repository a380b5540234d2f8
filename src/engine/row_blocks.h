// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which rows of hidden make one tile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace logitless::engine {

/// A few rows of hidden that are computed together: order[begin .. begin + count) of its RowBlocks.
struct RowBlock {
  int64_t begin = 0;
  int64_t count = 0;
  bool contiguous = true;  // they follow one another in hidden and d_hidden, so nothing has to be gathered
};

/// Pieces of rows: those of one piece that follow one another stand in memory at one stride.
struct RowBreaks {
  int64_t border = 0;       // rows of the first matrix
  int64_t first_time = 0;   // rows of each of its sequences, where these stand apart; 0: they do not
  int64_t second_time = 0;  // the same of the second matrix

  bool same_piece(int64_t a, int64_t b) const;
};

struct RowBlocks {
  std::vector<int64_t> order;  // rows of hidden
  std::vector<RowBlock> blocks;
  RowBreaks breaks;

  bool all_contiguous() const;
  /// Whether order[begin .. begin + count) follow one another in one piece.
  bool is_run(int64_t begin, int64_t count) const;
  std::span<const int64_t> rows(const RowBlock& block) const {
    return {order.data() + block.begin, static_cast<size_t>(block.count)};
  }
};

/// Cuts `rows` (increasing) into blocks of at most `most_rows`. Runs that follow one another in
/// memory become blocks that need no copy; what is left of short runs is pooled into blocks that are gathered. Blocks
/// of one run have nearly equal sizes, so that no tile is a sliver.
RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const RowBreaks& breaks);

/// The same, behind the blocks that `out` holds, whose breaks count.
void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, RowBlocks& out);

}  // namespace logitless::engine
