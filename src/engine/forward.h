// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Statistics of some row blocks.
#pragma once

#include <cstddef>

#include "engine/buffers.h"
#include "engine/context_state.h"
#include "engine/plan.h"
#include "engine/problem.h"
#include "logitless/token_stats.h"

namespace logitless::engine {

/// What every pass of one call shares.
template <class T>
struct Pass {
  const detail::ContextState& context;
  const Problem& problem;
  const RunPlan& run;
  const T* bias = nullptr;  // in the type of the sums
  T* bias_sums = nullptr;   // of a narrow d_bias
  T* chunk = nullptr;       // one pass: where the logits stay

  /// One pass: tile (block, vocabulary tile) of the chunk whose first block has `chunk_begin` tile rows before it.
  T* chunk_tile(const RowBlock& block, int64_t chunk_begin, int64_t vocab_tile) const {
    const TileGrid& grid = run.grid;
    const int64_t rows_before = (block.tile_begin - chunk_begin) * grid.vocab_tiles();
    return chunk + (rows_before + vocab_tile * block.tile_rows) * grid.tile_stride;
  }
};

/// logits [block.tile_rows, words] = hidden · head, raw, into `tile`. Overwrites. `hidden`: tile_operand().
template <class T>
void compute_logits(const Pass<T>& pass, const RowBlock& block, const gemm::Operand& hidden, int64_t vocab_tile,
                    void* gemm_scratch, T* tile);

/// Entries of the statistics that the request asks for, [N] each, with the values of rows that take no part.
TokenStats empty_stats(const TokenProblem& problem);

/// The finished statistics of one row; logp is 0 where a row has no target. Its rank is 1 (0: undefined) until the
/// words above the target are counted.
void store_row_stats(const TokenProblem& problem, int64_t row, const rows::RowStats& folded, TokenStats& stats);

/// Fills `stats` for the rows of blocks [begin, end). In one pass their raw logits stay in pass.chunk.
template <class T>
void run_forward(const Pass<T>& pass, ForwardBuffers<T>& buffers, size_t begin, size_t end, TokenStats& stats);

}  // namespace logitless::engine
