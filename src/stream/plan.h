// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This decides how a call cuts its work. Everything that decides about bits follows from shapes, options and
// the budget; only how many tiles are alive at once, and how many threads work on them, follows from the
// threads.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "stream/context_state.h"
#include "stream/row_blocks.h"
#include "stream/tile_grid.h"

namespace logitless::stream {

using problem::LogitsProblem;
using problem::TokenProblem;

/// What a call has to do, as far as planning needs to know.
struct Work {
  bool forward = true;         // statistics are computed
  bool backward = false;       // gradients are
  bool may_drop_rows = false;  // some rows' token gradients may turn out to be all zero
  /// In one pass, rows of one group stay in one chunk; these are the ids of TokenLoss::groups().
  std::span<const int64_t> groups = {};
  /// Without `forward`, this many of the rows that take part have a gradient.
  int64_t kept_rows = 0;
};

/// Returns of how many terms of bfloat16 the gradients of logits are made, or 0 where they have the logits'
/// type: it follows from the operands, the backend and ContextOptions::gradient_precision.
int gradient_terms(const detail::ContextState& context, const HiddenProblem& problem);

/// The sizes of a product that is logits: hidden [rows, depth] · head [depth, entries].
struct ProductSizes {
  int64_t rows, entries, depth;
};
/// Estimates what the backend allocates by itself for one thread's logits of these sizes and the products of
/// their gradients, which write so many components of d_hidden and d_weight at once.
size_t packing_bytes(const gemm::Backend& gemm, const HiddenProblem& problem, DType gradient, const ProductSizes& sizes,
                     int64_t hidden_block, int64_t weight_block);

/// Fills what a plan says of its products, where gradients have `terms`, as gradient_terms() counts them.
void set_arithmetic(const gemm::Backend& gemm, const HiddenProblem& problem, int terms, Plan& plan);

struct RunPlan {
  Plan plan;
  /// What multiplies: the context's backend, or the one for few rows.
  const gemm::Backend* gemm = nullptr;
  /// The gradients of a tile are this many terms of bfloat16, or of the logits' own type where it is 0.
  int gradient_terms = 0;
  TileGrid grid;
  RowBlocks blocks;
  /// Each chunk begins at the block of this index, and the last entry is the end. Only one pass has several
  /// chunks.
  core::Array<size_t> chunks;
  int64_t chunk_tile_rows = 0;  // most tile rows of a chunk

  int64_t chunk_count() const { return static_cast<int64_t>(chunks.size()) - 1; }
  std::span<const RowBlock> blocks_of(int64_t chunk) const {
    const auto c = static_cast<size_t>(chunk);
    return std::span(blocks.blocks).subspan(chunks[c], chunks[c + 1] - chunks[c]);
  }
  /// Returns the rows of a chunk, in the order of its blocks.
  std::span<const int64_t> rows_of(int64_t chunk) const {
    const std::span<const RowBlock> of_chunk = blocks_of(chunk);
    if (of_chunk.empty()) return {};
    const int64_t begin = of_chunk.front().begin, end = of_chunk.back().begin + of_chunk.back().count;
    return std::span(blocks.order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
  /// The logits of a chunk stay until their gradients are made (one pass); else they are computed again.
  bool logits_stay = false;
  /// Rows are copied together where they do not follow one another; room for that is planned.
  bool gather = false;
  /// Rows may turn out to have no gradient: Work::may_drop_rows.
  bool may_drop_rows = false;
  /// Rows of some block may not follow one another in d_hidden; room for a block's part of it is planned.
  bool scatter = false;
  /// float32 or float64 sums of d_hidden stand apart from the output until all vocabulary entries are in
  /// them. This is always so where the output is narrower than its sums.
  bool hidden_apart = false;
};

/// Throws InvalidInput where plan one_pass was asked for and `work` is gradients of their own, which come
/// after the forward pass.
void check_one_pass(const ContextOptions& options, const Work& work);

/// Plans `work` on the rows that take part. Tiles that the context does not fix become smaller where the
/// budget holds none of the usual size. It throws InvalidInput when the budget does not hold the smallest
/// either (the message names the least budget that is accepted), or when a plan that was asked for cannot
/// run. Plan dense is not planned here.
RunPlan choose_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                    const Gradients& outputs);

/// Returns the least ContextOptions::workspace_bytes with which choose_plan() accepts the same call; it does
/// not depend on the threads. It takes several times as long as a plan: every size of tile down to the
/// smallest is planned.
size_t least_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                       const Gradients& outputs);

/// Returns what plan dense takes, whatever the budget. It throws InvalidInput where that plan cannot run.
Plan dense_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                const Gradients& outputs);

/// How a call cuts its work on finished logits.
struct SweepPlan {
  Plan plan;
  /// The loss sees all rows at once, so that all logits are read before the first gradient is made. Otherwise
  /// a block of rows is folded, evaluated and turned into gradients while it is in a core's cache.
  bool all_rows_at_once = false;
};

/// Plans `work` on finished logits, for `threads` threads or as many as the budget holds the scratch of. It
/// throws InvalidInput when it does not hold that of one thread, or when plan one_pass was asked for and
/// cannot run.
SweepPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem, const Work& work);

/// Returns the least ContextOptions::workspace_bytes with which choose_plan() accepts the same call.
size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem, const Work& work);

}  // namespace logitless::stream
