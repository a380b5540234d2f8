// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/walk_tiles.h"

#include <omp.h>

#include "core/parallel.h"

namespace logitless::stream {
namespace {

// One task of a walk: the tiles of one stretch of the vocabulary for one row block. Tasks share nothing, so
// their order does not affect any bits.
template <class Types>
class StretchTask {
 public:
  using Logit = typename Types::Logit;

  StretchTask(const Pass<Types>& pass, typename planning::ForwardBuffers<Types>::PerThread& scratch,
              const planning::RowBlock& block, const std::byte* reordered, int64_t chunk_begin)
      : pass_(pass), scratch_(scratch), block_(block), reordered_(reordered), chunk_begin_(chunk_begin) {}

  // `made`: the tiles are stored already.
  void run(std::span<fold::Fold<Types>* const> folds, const fold::FoldPart<Logit>& part, bool made) {
    for (const fold::Fold<Types>* fold : folds) fold->begin(part);
    if (!made) pass_.source.gather(*pass_.run.gemm, tile_rows());
    const planning::TileGrid& grid = pass_.run.grid;
    for (int64_t j = grid.stretch_begin(part.stretch); j < grid.stretch_begin(part.stretch + 1); ++j) {
      if (!made) {
        pass_.source.make_tile(tile_rows(), grid.first_entry(j), grid.entries(j), data(j), grid.tile_stride,
                               pass_.multiplier(scratch_.products));
      }
      // The folds get the block's rows without the padding of its tiles. No rows were dropped yet, so they
      // are contiguous.
      const int64_t first = pass_.run.blocks.first_place(block_);
      const stats::LogitsTile<Logit> tile = pass_.tile(data(j), block_.tile_rows, first, block_.count, j);
      for (const fold::Fold<Types>* fold : folds) fold->add(part, tile);
    }
  }

 private:
  source::TileRows tile_rows() const { return {pass_.run.blocks, block_, scratch_.gathered, reordered_}; }
  Logit* data(int64_t j) const {
    return pass_.run.logits_stay ? pass_.chunk_tile(block_, chunk_begin_, j) : scratch_.tile;
  }

  const Pass<Types>& pass_;
  typename planning::ForwardBuffers<Types>::PerThread& scratch_;
  const planning::RowBlock& block_;
  const std::byte* reordered_;  // rows of the tiles; null if they are not reordered
  int64_t chunk_begin_;
};

// Sorts the lists of the largest logits, which takes long enough to use a team.
template <class Types>
void combine(const Pass<Types>& pass, std::span<const planning::RowBlock> blocks, const fold::CallFolds<Types>& folds,
             fold::Walk walk) {
  const bool lists = folds.partials().top && walk == fold::Walk::kFirst;
  if (pass.run.grid.stretches < 2 && !lists) return;
  const int64_t first = blocks.front().begin, rows = blocks.back().begin + blocks.back().count - first;
  core::parallel_ranges(lists ? pass.run.plan.threads : 1, rows, [&](int64_t begin, int64_t end) {
    for (const fold::Partials* partials : folds.partials().of(walk)) {
      for (int64_t place = begin; place < end; ++place) {
        partials->combine(pass.run.blocks.order[static_cast<size_t>(first + place)], place);
      }
    }
  });
}

}  // namespace

template <class Types>
void walk_tiles(const Pass<Types>& pass, planning::ForwardBuffers<Types>& buffers,
                std::span<const planning::RowBlock> blocks, const fold::CallFolds<Types>& folds, fold::Walk walk,
                stats::Columns& columns) {
  if (blocks.empty()) return;
  const auto alone = pass.run.gemm->single_threaded_region();
  const bool first_walk = walk == fold::Walk::kFirst;
  if (first_walk) {
    buffers.reordered.reorder(pass.source, *pass.run.gemm, pass.tiles.row_kernels(), pass.run.plan.threads,
                              pass.run.blocks, blocks, [&](size_t thread) { return buffers.threads[thread].gathered; });
  }
  folds.partials().begin(walk, 0, blocks.back().begin + blocks.back().count - blocks.front().begin);
  // Neighbouring tasks share a part of the head, so it is read from memory once.
  const auto row_blocks = static_cast<int64_t>(blocks.size());
  core::parallel_for(pass.run.plan.threads, pass.run.grid.stretches * row_blocks, [&](int64_t task) {
    const int64_t b = task % row_blocks;
    const planning::RowBlock& block = blocks[static_cast<size_t>(b)];
    fold::FoldPart<typename Types::Logit> part;
    part.thread = omp_get_thread_num();
    typename planning::ForwardBuffers<Types>::PerThread& scratch = buffers.threads[static_cast<size_t>(part.thread)];
    part.rows = pass.run.blocks.rows(block);
    part.place = block.begin - blocks.front().begin;
    part.stretch = task / row_blocks;
    part.scratch = scratch.row;
    part.columns = &columns;
    StretchTask<Types>(pass, scratch, block, buffers.reordered.of(b), blocks.front().tile_begin)
        .run(folds.of(walk), part, !first_walk && pass.run.logits_stay);
  });
  combine(pass, blocks, folds, walk);
}

#define LOGITLESS_INSTANTIATE(Types)                                                                                  \
  template void walk_tiles(const Pass<Types>&, planning::ForwardBuffers<Types>&, std::span<const planning::RowBlock>, \
                           const fold::CallFolds<Types>&, fold::Walk, stats::Columns&);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
LOGITLESS_INSTANTIATE(kernels::BFloat16Tiles)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stream
