// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The walk over tiles that a source computes.
#pragma once

#include <omp.h>

#include <cstdint>
#include <span>

#include "core/arena.h"
#include "core/parallel.h"
#include "core/store.h"
#include "fold/folds.h"
#include "source/reordered_states.h"
#include "stream/pass.h"
#include "stream/tile_buffers.h"

namespace logitless::stream {

/// Visits all tiles of one chunk's blocks, passes each to the folds of the walk, and combines their partials.
/// Logits that are stored are in pass.chunk after the first walk; the second walk recomputes the others.
template <class Types>
class TileWalk {
 public:
  using Logit = typename Types::Logit;
  using Folds = fold::CallFolds<Types>;

  /// Takes memory for the scratch of threads and for the partials of `folds`.
  TileWalk(core::Arena& arena, const Pass<Types>& pass, Folds& folds) : pass_(pass), folds_(folds) {
    const planning::RunPlan& run = pass.run;
    const planning::TileGrid& grid = run.grid;
    const size_t gemm_bytes = pass.source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch_of(*run.gemm));
    threads_.resize(static_cast<size_t>(run.plan.threads));
    for (PerThread& thread : threads_) {
      if (run.stored_tiles() < grid.vocab_tiles()) thread.tile = arena.take<Logit>(pass.tile_elements());
      if (run.gather) thread.gathered = pass.source.take_gather_buffer(arena, grid.tile_rows);
      thread.products = pass.source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
      thread.row = arena.take<Logit>(pass.source.sides() * grid.vocab_tile);
    }
    folds.take(arena, run.plan.chunk_rows, grid.vocab_ranges, {run.plan.threads, grid.row_tile, grid.vocab_tile});
    reordered_ = source::ReorderedStates(arena, run.plan.packed_bytes);
  }

  void run(fold::Walk walk, std::span<const planning::RowBlock> blocks, stats::Columns& columns) {
    if (blocks.empty()) return;
    const planning::RunPlan& run = pass_.run;
    const auto alone = run.gemm->single_threaded_region();
    if (walk == fold::Walk::kFirst) {
      reordered_.reorder(pass_.source, *run.gemm, pass_.tiles->row_kernels(), run.plan.threads, run.blocks, blocks,
                         [&](size_t thread) { return threads_[thread].gathered; });
    }
    folds_.partials().begin(walk, 0, blocks.back().begin + blocks.back().count - blocks.front().begin);
    // Neighbouring tasks share a part of the head, so it is read from memory once. Tasks share no sums, so
    // their order does not affect any bits.
    const auto row_blocks = static_cast<int64_t>(blocks.size());
    core::parallel_for(run.plan.threads, run.grid.vocab_ranges * row_blocks, [&](int64_t task) {
      const int64_t b = task % row_blocks;
      fold::FoldPart<Logit> part;
      part.thread = omp_get_thread_num();
      part.rows = run.blocks.rows(blocks[static_cast<size_t>(b)]);
      part.place = blocks[static_cast<size_t>(b)].begin - blocks.front().begin;
      part.vocab_range = task / row_blocks;
      part.columns = &columns;
      fold_range(walk, blocks, b, part);
    });
    combine(walk, blocks);
  }

 private:
  struct PerThread {
    Logit* tile = nullptr;          // [tile_rows, tile_stride]; null if all logits are stored
    source::GatherBuffer gathered;  // [tile_rows]
    source::Scratch products;
    Logit* row = nullptr;  // [sides, vocab_tile]: scratch of folds
  };

  // Folds the tiles of one range of the vocabulary for row block b.
  void fold_range(fold::Walk walk, std::span<const planning::RowBlock> blocks, int64_t b, fold::FoldPart<Logit>& part) {
    const planning::RunPlan& run = pass_.run;
    const planning::TileGrid& grid = run.grid;
    const planning::RowBlock& block = blocks[static_cast<size_t>(b)];
    PerThread& mine = threads_[static_cast<size_t>(part.thread)];
    part.scratch = mine.row;
    const source::TileRows rows = {run.blocks, block, mine.gathered, reordered_.of(b)};
    for (const fold::Fold<Types>* fold : folds_.of(walk)) fold->begin(part);
    const int64_t begin = grid.vocab_range_begin(part.vocab_range), end = grid.vocab_range_begin(part.vocab_range + 1);
    const auto has_logits = [&](int64_t j) { return walk == fold::Walk::kSecond && run.stores(j); };
    if (!has_logits(end - 1)) pass_.source.gather(*run.gemm, rows);
    for (int64_t j = begin; j < end; ++j) {
      Logit* const data = run.stores(j) ? pass_.chunk_tile(block, blocks.front().tile_begin, j) : mine.tile;
      if (!has_logits(j)) {
        pass_.source.make_tile(rows, grid.first_entry(j), grid.entries(j), data, grid.tile_stride,
                               pass_.multiplier(mine.products));
      }
      // The folds get the block's rows without the padding of its tiles. No rows were dropped yet, so they
      // are contiguous.
      const auto tile = pass_.tile(data, block.tile_rows, run.blocks.first_place(block), block.count, j);
      for (const fold::Fold<Types>* fold : folds_.of(walk)) fold->add(part, tile);
    }
  }

  // Merges the ranges of each row. Also sorts the lists of the largest logits, which takes long enough to use
  // a team.
  void combine(fold::Walk walk, std::span<const planning::RowBlock> blocks) const {
    const planning::RunPlan& run = pass_.run;
    const bool lists = folds_.partials().top && walk == fold::Walk::kFirst;
    if (run.grid.vocab_ranges < 2 && !lists) return;
    const int64_t first = blocks.front().begin, rows = blocks.back().begin + blocks.back().count - first;
    core::parallel_ranges(lists ? run.plan.threads : 1, rows, [&](int64_t begin, int64_t end) {
      for (const fold::Partials* partials : folds_.partials().of(walk)) {
        for (int64_t place = begin; place < end; ++place) {
          partials->combine(run.blocks.order[static_cast<size_t>(first + place)], place);
        }
      }
    });
  }

  const Pass<Types>& pass_;
  const Folds& folds_;
  core::Array<PerThread> threads_;
  source::ReorderedStates reordered_;  // of the chunk's blocks
};

}  // namespace logitless::stream
