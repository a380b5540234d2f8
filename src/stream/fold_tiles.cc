// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stream/fold_tiles.h"

#include <omp.h>

#include <algorithm>
#include <limits>

#include "core/parallel.h"

namespace logitless::stream {
namespace {

// One task of the forward pass: the tiles of one vocabulary segment for one row block. Tasks share
// nothing but counts, so the order in which threads take them does not matter to any bit.
template <class Types>
class SegmentTask {
 public:
  using Logit = typename Types::Logit;

  SegmentTask(const Pass<Types>& pass, typename plan::ForwardBuffers<Types>::PerThread& scratch,
              const plan::RowBlock& block, const std::byte* packed, int64_t segment, int64_t chunk_begin)
      : pass_(pass),
        scratch_(scratch),
        block_(block),
        packed_(packed),
        rows_(pass.run.blocks.rows(block)),
        chunk_begin_(chunk_begin),
        first_tile_(pass.run.grid.segment_begin(segment)),
        end_tile_(pass.run.grid.segment_begin(segment + 1)) {
    // Rows that have been in no tile before stand one after the other.
    first_row_ = pass.run.blocks.first_place(block) * pass.run.grid.tile_stride;
  }

  void fold(kernels::RowStats* stats) {
    std::fill_n(stats, block_.count, kernels::RowStats{});
    pass_.tiles.set_temperatures(rows_, scratch_.fold);
    gather();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      make_logits(j);
      pass_.tiles.fold(own_rows(j), rows_, scratch_.fold, stats);
    }
  }

  // Adds to each row's rank the vocabulary entries of this segment whose logits are larger than the target's.
  // `whole` is what all segments together gave. The same GEMM makes the same tiles, so the logits are those
  // of fold() to the bit.
  void count_above(const kernels::RowStats* whole, std::span<int64_t> ranks) {
    for (int64_t r = 0; r < block_.count; ++r) {
      scratch_.chosen[r] =
          static_cast<Logit>(whole[r].defined() ? whole[r].chosen : std::numeric_limits<double>::quiet_NaN());
    }
    std::fill_n(scratch_.above, block_.count, int64_t{0});
    if (!pass_.run.logits_stay) gather();
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      if (!pass_.run.logits_stay) make_logits(j);
      pass_.tiles.count_above(own_rows(j), scratch_.chosen, scratch_.fold.row, scratch_.above);
    }
    for (int64_t r = 0; r < block_.count; ++r) {
      int64_t& rank = ranks[static_cast<size_t>(rows_[static_cast<size_t>(r)])];
#pragma omp atomic
      rank += scratch_.above[r];
    }
  }

 private:
  source::TileRows tile_rows() const { return {pass_.run.blocks, block_, scratch_.gathered, packed_}; }
  void gather() const { pass_.source.gather(*pass_.run.gemm, tile_rows()); }
  void make_logits(int64_t j) const {
    const plan::TileGrid& grid = pass_.run.grid;
    pass_.source.make_tile(tile_rows(), grid.first_entry(j), grid.entries(j), data(j), grid.tile_stride,
                           pass_.multiplier(scratch_.products));
  }
  Logit* data(int64_t j) const {
    return pass_.run.logits_stay ? pass_.chunk_tile(block_, chunk_begin_, j) : scratch_.tile;
  }
  // Returns the rows of the block, without those that pad its tiles.
  stats::LogitsTile<Logit> own_rows(int64_t j) const { return pass_.tile(data(j) + first_row_, block_.count, j); }

  const Pass<Types>& pass_;
  typename plan::ForwardBuffers<Types>::PerThread& scratch_;
  const plan::RowBlock& block_;
  const std::byte* packed_;  // the rows of its tiles; null where they are not
  std::span<const int64_t> rows_;
  int64_t chunk_begin_;
  int64_t first_row_ = 0;  // elements from the beginning of a tile to the block's first row
  int64_t first_tile_;
  int64_t end_tile_;
};

// Calls work(task, index of the block's first row in the chunk, segment) for each segment and row block.
// Neighbouring tasks share a part of the head, so that it comes from memory once.
template <class Types, class Work>
void for_each_segment(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers,
                      std::span<const plan::RowBlock> blocks, const Work& work) {
  const auto row_blocks = static_cast<int64_t>(blocks.size());
  const auto alone = pass.run.gemm->single_threaded_region();
  core::parallel_for(pass.run.plan.threads, pass.run.grid.segments * row_blocks, [&](int64_t task) {
    const int64_t segment = task / row_blocks;
    const int64_t b = task % row_blocks;
    const plan::RowBlock& block = blocks[static_cast<size_t>(b)];
    typename plan::ForwardBuffers<Types>::PerThread& scratch =
        buffers.threads[static_cast<size_t>(omp_get_thread_num())];
    const int64_t chunk_begin = blocks.front().tile_begin;
    work(SegmentTask<Types>(pass, scratch, block, buffers.packed.of(b), segment, chunk_begin),
         block.begin - blocks.front().begin, segment);
  });
}

}  // namespace

template <class Types>
void fold_tiles(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers, std::span<const plan::RowBlock> blocks,
                const stats::Partials& partials) {
  {
    const auto alone = pass.run.gemm->single_threaded_region();
    buffers.packed.pack(pass.source, *pass.run.gemm, pass.run.plan.threads, pass.run.blocks, blocks,
                        [&](size_t thread) { return buffers.threads[thread].gathered; });
  }
  for_each_segment(pass, buffers, blocks, [&](SegmentTask<Types> task, int64_t first, int64_t segment) {
    task.fold(&partials.of(segment, first));
  });
}

template <class Types>
void count_above_tiles(const Pass<Types>& pass, plan::ForwardBuffers<Types>& buffers,
                       std::span<const plan::RowBlock> blocks, const stats::Partials& partials,
                       std::span<int64_t> ranks) {
  for_each_segment(pass, buffers, blocks, [&](SegmentTask<Types> task, int64_t first, int64_t) {
    task.count_above(&partials.whole(first), ranks);
  });
}

#define LOGITLESS_INSTANTIATE(Types)                                                                                 \
  template void fold_tiles(const Pass<Types>&, plan::ForwardBuffers<Types>&, std::span<const plan::RowBlock>,        \
                           const stats::Partials&);                                                                  \
  template void count_above_tiles(const Pass<Types>&, plan::ForwardBuffers<Types>&, std::span<const plan::RowBlock>, \
                                  const stats::Partials&, std::span<int64_t>);
LOGITLESS_INSTANTIATE(kernels::FloatTiles)
LOGITLESS_INSTANTIATE(kernels::DoubleTiles)
LOGITLESS_INSTANTIATE(kernels::BFloat16Tiles)
#undef LOGITLESS_INSTANTIATE

}  // namespace logitless::stream
