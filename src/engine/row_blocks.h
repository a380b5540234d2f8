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
  bool contiguous = true;  // they follow one another in hidden, so nothing has to be gathered
};

struct RowBlocks {
  std::vector<int64_t> order;  // rows of hidden
  std::vector<RowBlock> blocks;

  bool all_contiguous() const;
  std::span<const int64_t> rows(const RowBlock& block) const {
    return {order.data() + block.begin, static_cast<size_t>(block.count)};
  }
};

/// Cuts `rows` (increasing) into blocks of at most `most_rows`. Runs that follow one another in memory become blocks
/// that need no copy; what is left of short runs is pooled into blocks that are gathered. Blocks of one run have nearly
/// equal sizes, so that no tile is a sliver.
RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows);

/// The same, behind the blocks that `out` holds.
void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, RowBlocks& out);

}  // namespace logitless::engine
