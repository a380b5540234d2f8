// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/forward.h"

#include <omp.h>

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "engine/rows_of_hidden.h"

namespace logitless::engine {
namespace {

// One task of the forward pass: the tiles of one vocabulary segment for one row block. Tasks share nothing but counts,
// so the order in which threads take them does not matter to any bit.
template <class T>
class SegmentTask {
 public:
  SegmentTask(const Pass<T>& pass, typename ForwardBuffers<T>::PerThread& scratch, const RowBlock& block,
              int64_t segment, int64_t chunk_begin)
      : pass_(pass),
        scratch_(scratch),
        block_(block),
        chunk_begin_(chunk_begin),
        first_tile_(pass.run.grid.segment_begin(segment)),
        end_tile_(pass.run.grid.segment_begin(segment + 1)) {
    const RowBlocks& blocks = pass.run.blocks;
    if (!block.contiguous) gather_tile(pass.problem, blocks, block, scratch.gathered);
    hidden_ = tile_operand(pass.problem, blocks, block, scratch.gathered);
    // Rows that have been in no tile before stand one after the other.
    first_row_ = blocks.first_place(block) * pass.run.grid.tile_stride;
  }

  void fold(rows::RowStats* stats) {
    std::fill_n(stats, block_.count, rows::RowStats{});
    int64_t r = 0;
    for (const int64_t row : pass_.run.blocks.rows(block_)) {
      scratch_.inverse_temperature[r++] = static_cast<T>(1 / pass_.problem.logit_temperature(row));
    }
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      compute_logits(pass_, block_, hidden_, j, scratch_.gemm, tile(j));
      fold_tile(j, stats);
    }
  }

  // Adds to each row's rank the words of this segment whose logits are larger than the target's. `whole`: what all
  // segments together gave. The same GEMM makes the same tiles, so the logits are those of fold() to the bit.
  void count_above(const rows::RowStats* whole, std::span<int64_t> ranks) {
    for (int64_t r = 0; r < block_.count; ++r) {
      scratch_.chosen[r] =
          static_cast<T>(whole[r].defined() ? whole[r].chosen : std::numeric_limits<double>::quiet_NaN());
    }
    std::fill_n(scratch_.above, block_.count, int64_t{0});
    for (int64_t j = first_tile_; j < end_tile_; ++j) {
      if (!pass_.chunk) compute_logits(pass_, block_, hidden_, j, scratch_.gemm, tile(j));
      pass_.context.kernels->template typed<T>().count_above(
          {shape(j), tile(j) + first_row_, scratch_.chosen, scratch_.row, scratch_.above});
    }
    for (int64_t r = 0; r < block_.count; ++r) {
      int64_t& rank = ranks[static_cast<size_t>(pass_.run.blocks.order[static_cast<size_t>(block_.begin + r)])];
#pragma omp atomic
      rank += scratch_.above[r];
    }
  }

 private:
  T* tile(int64_t j) const { return pass_.chunk ? pass_.chunk_tile(block_, chunk_begin_, j) : scratch_.tile; }

  rows::TileShape<T> shape(int64_t j) const {
    const TileGrid& grid = pass_.run.grid;
    return {block_.count,
            grid.words(j),
            grid.tile_stride,
            pass_.bias ? pass_.bias + grid.first_word(j) : nullptr,
            static_cast<T>(pass_.problem.head.softcap),
            pass_.problem.options.round_logits_to};
  }

  void fold_tile(int64_t j, rows::RowStats* stats) {
    const Problem& problem = pass_.problem;
    const TileGrid& grid = pass_.run.grid;
    const int64_t first = grid.first_word(j);
    int64_t r = 0;
    for (const int64_t row : pass_.run.blocks.rows(block_)) {
      const int64_t column = problem.targets[static_cast<size_t>(row)] - first;
      scratch_.target[r++] = column >= 0 && column < grid.words(j) ? static_cast<int32_t>(column) : -1;
    }
    rows::FoldArgs<T> args;
    args.shape = shape(j);
    args.logits = tile(j) + first_row_;
    args.inverse_temperature = scratch_.inverse_temperature;
    args.target = scratch_.target;
    args.first_column = first;
    args.entropy = problem.request.entropy;
    args.argmax = problem.request.argmax;
    args.prior = problem.request.prior;
    args.prior_weights = problem.options.prior.empty() ? nullptr : problem.options.prior.data() + first;
    args.uniform_prior = 1.0 / static_cast<double>(problem.vocab_size);
    args.scratch = scratch_.row;
    args.stats = stats;
    pass_.context.kernels->template typed<T>().fold(args);
  }

  const Pass<T>& pass_;
  typename ForwardBuffers<T>::PerThread& scratch_;
  const RowBlock& block_;
  int64_t chunk_begin_;
  int64_t first_row_ = 0;  // elements from the beginning of a tile to the block's first row
  int64_t first_tile_;
  int64_t end_tile_;
  gemm::Operand hidden_;
};

}  // namespace

template <class T>
void compute_logits(const Pass<T>& pass, const RowBlock& block, const gemm::Operand& hidden, int64_t vocab_tile,
                    void* gemm_scratch, T* tile) {
  const TileGrid& grid = pass.run.grid;
  gemm::Product<T> product;
  product.m = block.tile_rows;
  product.n = grid.words(vocab_tile);
  product.k = grid.hidden_size;
  product.a = hidden;
  product.b = head_operand(pass.problem.head, grid.first_word(vocab_tile), 0, /*hidden_first=*/true);
  product.c = tile;
  product.ldc = grid.tile_stride;
  pass.context.gemm->multiply(product, *pass.context.kernels, gemm_scratch);
}

void store_row_stats(const TokenProblem& problem, int64_t row, const rows::RowStats& folded, TokenStats& stats) {
  const auto i = static_cast<size_t>(row);
  const double t = problem.logit_temperature(row);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool valid = folded.defined();
  const double log_sum = valid ? folded.log_sum() : nan;
  stats.max_logit[i] = valid ? folded.max : nan;
  stats.log_sum[i] = log_sum;
  if (problem.targets[i] >= 0)
    stats.logp[i] = ((folded.chosen - stats.max_logit[i]) / t - log_sum) / problem.logp_temperature(row);
  stats.lse[i] = stats.max_logit[i] / t + log_sum;
  if (problem.request.entropy) stats.entropy[i] = log_sum - folded.weighted / (1 + folded.rest);
  if (problem.request.prior) stats.prior[i] = folded.prior - log_sum * folded.prior_mass;
  if (problem.request.argmax) stats.argmax[i] = valid ? folded.argmax : -1;
  if (problem.request.rank) stats.rank[i] = valid && problem.targets[i] >= 0 ? 1 : 0;
}

TokenStats empty_stats(const TokenProblem& problem) {
  const auto n = static_cast<size_t>(problem.tokens);
  TokenStats stats;
  stats.logp.assign(n, 0);
  stats.lse.assign(n, 0);
  stats.max_logit.assign(n, 0);
  stats.log_sum.assign(n, 0);
  if (problem.request.entropy) stats.entropy.assign(n, 0);
  if (problem.request.prior) stats.prior.assign(n, 0);
  if (problem.request.argmax) stats.argmax.assign(n, -1);
  if (problem.request.rank) stats.rank.assign(n, 0);
  return stats;
}

template <class T>
void run_forward(const Pass<T>& pass, ForwardBuffers<T>& buffers, size_t begin, size_t end, TokenStats& stats) {
  if (begin == end) return;
  const TileGrid& grid = pass.run.grid;
  const std::span<const RowBlock> blocks(pass.run.blocks.blocks.data() + begin, end - begin);
  const int64_t chunk_begin = blocks.front().begin;
  const auto row_blocks = static_cast<int64_t>(blocks.size());
  const auto partials = [&](const RowBlock& block, int64_t segment) {
    return buffers.partials + (block.begin - chunk_begin) * grid.segments + segment * block.count;
  };
  const auto alone = pass.context.gemm->single_threaded_region();
  // Neighbouring tasks share a part of the head, so that it comes from memory once.
  const auto for_each_segment = [&](const auto& work) {
    core::parallel_for(pass.run.plan.threads, grid.segments * row_blocks, [&](int64_t task) {
      const int64_t segment = task / row_blocks;
      const RowBlock& block = blocks[static_cast<size_t>(task % row_blocks)];
      typename ForwardBuffers<T>::PerThread& scratch = buffers.threads[static_cast<size_t>(omp_get_thread_num())];
      work(SegmentTask<T>(pass, scratch, block, segment, blocks.front().tile_begin), block, segment);
    });
  };
  for_each_segment(
      [&](SegmentTask<T> task, const RowBlock& block, int64_t segment) { task.fold(partials(block, segment)); });
  for (const RowBlock& block : blocks) {
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t row = pass.run.blocks.order[static_cast<size_t>(block.begin + r)];
      const double scale = static_cast<T>(1 / pass.problem.logit_temperature(row));
      rows::RowStats& folded = partials(block, 0)[r];
      for (int64_t s = 1; s < grid.segments; ++s) folded = rows::merge(folded, partials(block, s)[r], scale);
      store_row_stats(pass.problem, row, folded, stats);
    }
  }
  if (!pass.problem.request.rank) return;
  for_each_segment(
      [&](SegmentTask<T> task, const RowBlock& block, int64_t) { task.count_above(partials(block, 0), stats.rank); });
}

template void compute_logits(const Pass<float>&, const RowBlock&, const gemm::Operand&, int64_t, void*, float*);
template void compute_logits(const Pass<double>&, const RowBlock&, const gemm::Operand&, int64_t, void*, double*);
template void run_forward(const Pass<float>&, ForwardBuffers<float>&, size_t, size_t, TokenStats&);
template void run_forward(const Pass<double>&, ForwardBuffers<double>&, size_t, size_t, TokenStats&);

}  // namespace logitless::engine
