// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/tile_grid.h"

#include <algorithm>

#include "core/integers.h"
#include "kernels/row_kernels.h"

namespace logitless::planning {
namespace {

using core::div_up;
using core::round_up;

// The sizes of tiles and blocks of products. A row tile is tall enough that each element of the head that a
// GEMM packs is used for 512 multiply-adds, or 1,024 if it is used only for logits.
constexpr int64_t kRowTile = 512;
constexpr int64_t kForwardRowTile = 1024;
// A tile has at most 2 MiB of float32: together with the GEMM's packed operands this is about a core's L2 and
// its share of L3.
constexpr int64_t kForwardEntries = 512;
// Fewer rows get wider tiles, up to this width; beyond it the row kernels miss L1.
constexpr int64_t kMostVocabTile = 4096;
// A small call gets narrower tiles so that several threads have work, down to kLeastVocabTile; below that a
// GEMM packs too much for what it computes.
constexpr int64_t kFewestTiles = 8;
constexpr int64_t kLeastVocabTile = 512;
// A small budget gets smaller tiles, down to 16 x 16, whose rows are one cache line.
constexpr int64_t kSmallestEdge = 16;
// A GEMM into d_hidden or d_weight writes at least this many columns, or all: narrower ones pack too much.
constexpr int64_t kHiddenBlock = 256;
// Tiles of fewer rows than kHighTile have at most kFewChains chains of d_hidden and of d_weight.
constexpr int64_t kHighTile = 256;
constexpr int64_t kFewChains = 4;
// This many tasks, row blocks × ranges, balance many threads; each costs 56 bytes per row.
constexpr int64_t kForwardTasks = 128;

// With a stride that is a multiple of 1 KiB, a tile's column would map to a few cache sets.
int64_t padded_stride(int64_t cols) {
  const int64_t stride = round_up(cols, 16);
  return stride % 256 == 0 ? stride + 16 : stride;
}

}  // namespace

gemm::RowRule any_row_rule(const gemm::Backend& gemm, const Source& source) { return source.row_rule(gemm, 1, 1); }

TileGrid make_grid(const ContextOptions& options, const gemm::Backend& gemm, const TileCap& cap, const Source& source,
                   TileUse use, int64_t rows, int64_t all_rows) {
  TileGrid grid;
  grid.vocab_size = source.entries();
  grid.hidden_size = source.hidden_size();
  const int64_t step = any_row_rule(gemm, source).row_step;
  const bool high = use == TileUse::kStatistics && rows >= kForwardRowTile;
  const int64_t table_rows = high ? kForwardRowTile : kRowTile;
  const gemm::Costs costs = gemm.costs(source.states_type(), source.head_type());
  const int64_t table_words = high                         ? kForwardEntries
                              : use == TileUse::kGradients ? costs.gradient_tile_entries
                                                           : costs.tile_entries;
  const int64_t most_rows = std::min(options.row_tile > 0 ? options.row_tile : round_up(table_rows, step), cap.rows);
  grid.row_tile = std::clamp<int64_t>(rows, 1, most_rows);
  if (grid.row_tile < all_rows && options.row_tile == 0 && most_rows >= step) {
    // Adjacent blocks need no padding rows if each has whole steps.
    grid.row_tile = std::min(round_up(grid.row_tile, step), most_rows / step * step);
  }
  const int64_t widest = std::clamp(table_rows * table_words / grid.row_tile / 64 * 64, table_words, kMostVocabTile);
  const int64_t share = round_up(div_up(grid.vocab_size * div_up(rows, grid.row_tile), kFewestTiles), 64);
  const int64_t vocab_tile = std::min(widest, std::max(share, kLeastVocabTile));
  grid.vocab_tile = std::min({options.vocab_tile > 0 ? options.vocab_tile : vocab_tile, cap.entries, grid.vocab_size});
  grid.tile_stride = padded_stride(grid.vocab_tile);
  return grid;
}

void widen_to_segments(TileGrid& grid) {
  grid.vocab_tile = std::min(round_up(grid.vocab_tile, kernels::kSegment), grid.vocab_size);
  grid.tile_stride = padded_stride(grid.vocab_tile);
}

void set_row_rule(const gemm::Backend& gemm, const Source& source, std::span<const int64_t> slices, TileGrid& grid) {
  const auto rule_of = [&](int64_t entries) { return source.row_rule(gemm, entries, grid.row_tile); };
  grid.row_rule = rule_of(grid.vocab_tile);
  const auto add_last = [&](int64_t entries) {
    if (entries == 0) return;
    const int64_t last = (entries - 1) % grid.vocab_tile + 1;
    grid.row_rule.least_rows = std::max(grid.row_rule.least_rows, rule_of(last).least_rows);
  };
  for (const int64_t entries : slices) add_last(entries);
  if (slices.empty()) add_last(grid.vocab_size);
  grid.tile_rows = grid.row_rule.padded(grid.row_tile);
}

void set_splits(const gemm::Costs& costs, int64_t row_blocks, int64_t weight_tiles, TileGrid& grid) {
  row_blocks = std::max<int64_t>(row_blocks, 1);
  const int64_t most_chains =
      grid.row_tile < kHighTile ? std::min(kFewChains, costs.gradient_chains) : costs.gradient_chains;
  const int64_t most_blocks = std::max<int64_t>(1, grid.hidden_size / kHiddenBlock);
  const auto split = [&](int64_t chains) {
    const int64_t blocks = std::clamp<int64_t>(div_up(most_chains, chains), 1, most_blocks);
    // Even if the hidden size is below kHiddenBlock, a LoRA's rank may be above it.
    return std::max(kHiddenBlock, std::min(grid.hidden_size, round_up(div_up(grid.hidden_size, blocks), 16)));
  };
  grid.hidden_block = split(row_blocks);
  grid.weight_block = split(std::min(weight_tiles, grid.vocab_tiles()));
  grid.vocab_ranges = std::clamp<int64_t>(div_up(kForwardTasks, row_blocks), 1, grid.vocab_tiles());
}

bool halve_tiles(const ContextOptions& options, const TileGrid& grid, TileCap& cap) {
  const bool rows = options.row_tile == 0 && grid.row_tile > kSmallestEdge;
  const bool entries = options.vocab_tile == 0 && grid.vocab_tile > kSmallestEdge;
  const auto half = [](int64_t edge) { return round_up(edge / 2, kSmallestEdge); };
  cap = {grid.row_tile, grid.vocab_tile};
  if (entries && (!rows || cap.entries >= cap.rows)) {
    cap.entries = half(cap.entries);
  } else if (rows) {
    cap.rows = half(cap.rows);
  }
  return rows || entries;
}

}  // namespace logitless::planning
