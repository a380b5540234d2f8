// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/row_blocks.h"

#include <algorithm>

namespace logitless::engine {
namespace {

// Row counts of blocks are multiples of this where possible: the widest row count of a BLAS micro-kernel.
constexpr int64_t kRowStep = 16;

int64_t balanced_rows(int64_t count, int64_t most_rows) {
  const int64_t blocks = (count + most_rows - 1) / most_rows;
  const int64_t rows = (count + blocks - 1) / blocks;
  return std::min(most_rows, (rows + kRowStep - 1) / kRowStep * kRowStep);
}

void append_blocks(std::span<const int64_t> rows, int64_t most_rows, RowBlocks& out) {
  const int64_t count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  const int64_t step = balanced_rows(count, most_rows);
  for (int64_t at = 0; at < count; at += step) {
    RowBlock block;
    block.begin = static_cast<int64_t>(out.order.size());
    block.count = std::min(step, count - at);
    const auto part = rows.subspan(static_cast<size_t>(at), static_cast<size_t>(block.count));
    out.order.insert(out.order.end(), part.begin(), part.end());
    block.contiguous = out.is_run(block.begin, block.count);
    out.blocks.push_back(block);
  }
}

}  // namespace

bool RowBreaks::same_piece(int64_t a, int64_t b) const {
  if ((a < border) != (b < border)) return false;
  const int64_t time = a < border ? first_time : second_time, begin = a < border ? 0 : border;
  return time == 0 || (a - begin) / time == (b - begin) / time;
}

bool RowBlocks::all_contiguous() const {
  return std::all_of(blocks.begin(), blocks.end(), [](const RowBlock& block) { return block.contiguous; });
}

bool RowBlocks::is_run(int64_t begin, int64_t count) const {
  const int64_t first = order[static_cast<size_t>(begin)], last = order[static_cast<size_t>(begin + count - 1)];
  return last - first == count - 1 && breaks.same_piece(first, last);
}

RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const RowBreaks& breaks) {
  RowBlocks out;
  out.breaks = breaks;
  out.order.reserve(rows.size());
  append_row_blocks(rows, most_rows, out);
  return out;
}

void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, RowBlocks& out) {
  std::vector<int64_t> pooled;
  // A run shorter than half a tile would cost more in a tile of its own than copying it costs.
  const size_t long_run = static_cast<size_t>(std::max<int64_t>(1, most_rows / 2));
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1 && out.breaks.same_piece(rows[end - 1], rows[end])) {
      ++end;
    }
    const auto run = rows.subspan(begin, end - begin);
    if (run.size() >= long_run) {
      append_blocks(run, most_rows, out);
    } else {
      pooled.insert(pooled.end(), run.begin(), run.end());
    }
    begin = end;
  }
  append_blocks(pooled, most_rows, out);
}

}  // namespace logitless::engine
