// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "source/row_blocks.h"

#include <algorithm>

#include "core/integers.h"
#include "core/store.h"

namespace logitless::source {
namespace {

using core::div_up;

int64_t balanced_rows(int64_t count, int64_t most_rows, const gemm::RowRule& rule) {
  const int64_t step = block_step(rule);
  if (count > most_rows && most_rows >= rule.row_step) most_rows = most_rows / rule.row_step * rule.row_step;
  return std::min(most_rows, core::round_up(div_up(count, div_up(count, most_rows)), step));
}

// Ends a block whose rows and places have been appended.
void close_block(int64_t begin, bool contiguous, int64_t tile_rows, RowBlocks& out) {
  RowBlock block;
  block.begin = begin;
  block.count = static_cast<int64_t>(out.order.size()) - begin;
  block.contiguous = contiguous;
  block.tile_rows = tile_rows;
  block.tile_begin = out.tile_rows();
  out.blocks.push_back(block);
}

void append_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule, RowBlocks& out) {
  const int64_t count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  const int64_t step = balanced_rows(count, most_rows, rule);
  for (int64_t at = 0; at < count; at += step) {
    const auto begin = static_cast<int64_t>(out.order.size());
    const int64_t in_block = std::min(step, count - at);
    const auto part = rows.subspan(static_cast<size_t>(at), static_cast<size_t>(in_block));
    out.order.insert(out.order.end(), part.begin(), part.end());
    const int64_t tile_rows = rule.padded(in_block);
    // If the tile needs more rows than the block has, it starts at the rows before the block, if they belong
    // to the same run.
    const int64_t before = tile_rows - in_block;
    const bool contiguous = before <= at && out.is_run(begin - before, before + in_block);
    for (int64_t r = 0; r < in_block; ++r) out.place.push_back(static_cast<int32_t>(contiguous ? before + r : r));
    close_block(begin, contiguous, tile_rows, out);
  }
}

}  // namespace

bool RowBlocks::all_contiguous() const {
  return std::all_of(blocks.begin(), blocks.end(), [](const RowBlock& block) { return block.contiguous; });
}

bool RowBlocks::is_run(int64_t begin, int64_t count) const {
  const int64_t first = order[static_cast<size_t>(begin)], last = order[static_cast<size_t>(begin + count - 1)];
  return last - first == count - 1 && breaks.evenly_spaced(first, last);
}

RowBlocks make_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule,
                          const RowBreaks& breaks) {
  RowBlocks out;
  out.breaks = breaks;
  out.order.reserve(rows.size());
  append_row_blocks(rows, most_rows, rule, out);
  return out;
}

void append_row_blocks(std::span<const int64_t> rows, int64_t most_rows, const gemm::RowRule& rule, RowBlocks& out) {
  core::Array<int64_t> pooled;
  // A run shorter than half a tile is copied: that costs less than a tile of its own.
  const size_t long_run = static_cast<size_t>(std::max<int64_t>(1, most_rows / 2));
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1 && out.breaks.evenly_spaced(rows[end - 1], rows[end])) {
      ++end;
    }
    const auto run = rows.subspan(begin, end - begin);
    if (run.size() >= long_run) {
      append_blocks(run, most_rows, rule, out);
    } else {
      pooled.insert(pooled.end(), run.begin(), run.end());
    }
    begin = end;
  }
  append_blocks(pooled, most_rows, rule, out);
}

void append_classed_blocks(std::span<const int64_t> rows, std::span<const int64_t> classes, int64_t most_rows,
                           const gemm::RowRule& rule, RowBlocks& out) {
  core::Array<int64_t> waiting[2];
  for (size_t i = 0; i < rows.size(); ++i) waiting[classes[i]].push_back(rows[i]);
  const auto most = static_cast<int64_t>(std::max(waiting[0].size(), waiting[1].size()));
  // The classes have equally many places in a period, so the larger class determines the number of periods.
  const int64_t places = div_up(most, rule.class_rows) * 2 * rule.class_rows;
  const int64_t step = balanced_rows(places, rule.padded(most_rows), rule);
  size_t next[2] = {0, 0};
  while (next[0] < waiting[0].size() || next[1] < waiting[1].size()) {
    const auto begin = static_cast<int64_t>(out.order.size());
    for (int64_t p = 0; p < step && static_cast<int64_t>(out.order.size()) - begin < most_rows; ++p) {
      const int64_t c = rule.class_of(p);
      if (next[c] == waiting[c].size()) continue;
      out.order.push_back(waiting[c][next[c]++]);
      out.place.push_back(static_cast<int32_t>(p));
    }
    close_block(begin, false, rule.padded(out.place.back() + 1), out);
  }
}

void append_block(const RowBlocks& from, const RowBlock& block, RowBlocks& out) {
  const auto begin = static_cast<int64_t>(out.order.size());
  const auto rows = from.rows(block);
  const auto places = from.places(block);
  out.order.insert(out.order.end(), rows.begin(), rows.end());
  out.place.insert(out.place.end(), places.begin(), places.end());
  close_block(begin, block.contiguous, block.tile_rows, out);
}

}  // namespace logitless::source
