// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "engine/forward.h"

#include <omp.h>

#include <cmath>
#include <limits>

#include "engine/rows_of_hidden.h"

namespace logitless::engine {
namespace {

// One task of the forward pass: the tiles of one vocabulary segment for one row block. Tasks share nothing, so the
// order in which threads take them does not matter to any bit.
template <class T>
class SegmentTask {
 public:
  SegmentTask(const Pass<T>& pass, typename ForwardBuffers<T>::PerThread& scratch, const RowBlock& block)
      : pass_(pass), scratch_(scratch), block_(block) {
    const RowBlocks& blocks = pass.run.blocks;
    if (!block.contiguous) gather_rows(pass.problem, blocks.rows(block), scratch.gathered);
    hidden_ = hidden_operand(pass.problem, blocks, block, scratch.gathered);
    int64_t r = 0;
    for (const int64_t row : blocks.rows(block)) {
      scratch.inverse_temperature[r++] = static_cast<T>(1 / pass.problem.logit_temperature(row));
    }
  }

  void run(int64_t first_tile, int64_t end_tile, int64_t chunk_begin, rows::RowStats* stats) {
    std::fill_n(stats, block_.count, rows::RowStats{});
    for (int64_t j = first_tile; j < end_tile; ++j) {
      T* tile = pass_.chunk ? pass_.chunk_tile(block_, chunk_begin, j) : scratch_.tile;
      compute_logits(pass_, block_, hidden_, j, scratch_.gemm, tile);
      fold(j, tile, stats);
    }
  }

 private:
  void fold(int64_t j, const T* tile, rows::RowStats* stats) {
    const Problem& problem = pass_.problem;
    const TileGrid& grid = pass_.run.grid;
    const int64_t first = grid.first_word(j);
    int64_t r = 0;
    for (const int64_t row : pass_.run.blocks.rows(block_)) {
      const int64_t column = problem.targets[static_cast<size_t>(row)] - first;
      scratch_.target[r++] = column >= 0 && column < grid.words(j) ? static_cast<int32_t>(column) : -1;
    }
    rows::FoldArgs<T> args;
    args.shape = {block_.count,
                  grid.words(j),
                  grid.tile_stride,
                  pass_.bias ? pass_.bias + first : nullptr,
                  static_cast<T>(problem.head.softcap),
                  problem.options.round_logits_to};
    args.logits = tile;
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
  gemm::Operand hidden_;
};

}  // namespace

template <class T>
void compute_logits(const Pass<T>& pass, const RowBlock& block, const gemm::Operand& hidden, int64_t vocab_tile,
                    void* gemm_scratch, T* tile) {
  const TileGrid& grid = pass.run.grid;
  gemm::Product<T> product;
  product.m = block.count;
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
  const bool valid = std::isfinite(folded.max);
  const double log_sum = valid ? folded.log_sum() : nan;
  stats.max_logit[i] = valid ? folded.max : nan;
  stats.log_sum[i] = log_sum;
  if (problem.targets[i] >= 0)
    stats.logp[i] = ((folded.chosen - stats.max_logit[i]) / t - log_sum) / problem.logp_temperature(row);
  stats.lse[i] = stats.max_logit[i] / t + log_sum;
  if (problem.request.entropy) stats.entropy[i] = log_sum - folded.weighted / (1 + folded.rest);
  if (problem.request.prior) stats.prior[i] = folded.prior - log_sum * folded.prior_mass;
  if (problem.request.argmax) stats.argmax[i] = valid ? folded.argmax : -1;
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
#pragma omp parallel for schedule(dynamic, 1) num_threads(pass.run.plan.threads)
  for (int64_t task = 0; task < grid.segments * row_blocks; ++task) {
    const int64_t segment = task / row_blocks;
    const RowBlock& block = blocks[static_cast<size_t>(task % row_blocks)];
    SegmentTask<T> work(pass, buffers.threads[static_cast<size_t>(omp_get_thread_num())], block);
    work.run(grid.segment_begin(segment), grid.segment_begin(segment + 1), chunk_begin, partials(block, segment));
  }
  for (const RowBlock& block : blocks) {
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t row = pass.run.blocks.order[static_cast<size_t>(block.begin + r)];
      const double scale = static_cast<T>(1 / pass.problem.logit_temperature(row));
      rows::RowStats folded = partials(block, 0)[r];
      for (int64_t s = 1; s < grid.segments; ++s) folded = rows::merge(folded, partials(block, s)[r], scale);
      store_row_stats(pass.problem, row, folded, stats);
    }
  }
}

template void compute_logits(const Pass<float>&, const RowBlock&, const gemm::Operand&, int64_t, void*, float*);
template void compute_logits(const Pass<double>&, const RowBlock&, const gemm::Operand&, int64_t, void*, double*);
template void run_forward(const Pass<float>&, ForwardBuffers<float>&, size_t, size_t, TokenStats&);
template void run_forward(const Pass<double>&, ForwardBuffers<double>&, size_t, size_t, TokenStats&);

}  // namespace logitless::engine
