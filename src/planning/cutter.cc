// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/cutter.h"

#include <algorithm>

#include "core/checks.h"
#include "core/integers.h"
#include "sink/weight_sink.h"
#include "source/reordered_states.h"
#include "stats/tile_kernels.h"

namespace logitless::planning {
namespace {

using core::div_up;
using core::round_up;

void cut_chunks(int64_t most_rows, RunPlan& run) {
  run.chunks = {0};
  int64_t rows = 0;
  for (size_t b = 0; b < run.blocks.blocks.size(); ++b) {
    const int64_t count = run.blocks.blocks[b].count;
    if (rows > 0 && rows + count > most_rows) {
      run.chunks.push_back(b);
      rows = 0;
    }
    rows += count;
  }
  run.chunks.push_back(run.blocks.blocks.size());
}

void cut_chunks(const RowChunks& chunks, const RowBreaks& breaks, RunPlan& run) {
  run.chunks = {0};
  run.blocks.breaks = breaks;
  run.blocks.order.reserve(chunks.order.size());
  for (int64_t c = 0; c < chunks.count(); ++c) {
    append_row_blocks(chunks.rows(c), run.grid.row_tile, run.grid.row_rule, run.blocks);
    run.chunks.push_back(run.blocks.blocks.size());
  }
}

// Estimates the memory that the backend itself allocates for one thread's logits of these sizes and for their
// gradient products.
size_t internal_bytes(const gemm::Backend& gemm, const Source& source, DType gradient, const source::PartSizes& sizes) {
  const auto bytes = [&](const source::ProductShape& p) { return gemm.internal_bytes(p.m, p.n, p.k, p.a, p.b); };
  return std::max(source.most_of_logits(sizes.rows, sizes.entries, bytes),
                  source.most_of_gradients(sizes, gradient, bytes));
}

// Sets the tile rows of the largest chunk, and returns the largest number of blocks in a chunk.
int64_t measure_chunks(RunPlan& run) {
  int64_t row_blocks = 0;
  for (int64_t c = 0; c < run.chunk_count(); ++c) {
    const std::span<const RowBlock> chunk = run.blocks_of(c);
    if (chunk.empty()) continue;
    row_blocks = std::max(row_blocks, static_cast<int64_t>(chunk.size()));
    const int64_t tile_rows = chunk.back().tile_begin + chunk.back().tile_rows - chunk.front().tile_begin;
    run.chunk_tile_rows = std::max(run.chunk_tile_rows, tile_rows);
  }
  return row_blocks;
}

// Returns the number of bfloat16 terms of the gradients of logits, or 0 if they have the logits' type.
// Depends on the operands, the backend and ContextOptions::gradient_precision.
int gradient_terms(const detail::ContextState& context, const Source& source) {
  const DType hidden = source.states_type(), weight = source.head_type();
  // If the backend widens bfloat16, narrow gradients would lose digits and save nothing.
  if (hidden != DType::kBFloat16 || weight != DType::kBFloat16 || !context.gemm->reads(hidden, weight)) return 0;
  switch (context.options.gradient_precision) {
    case GradientPrecision::kNative:
      return 1;
    case GradientPrecision::kSplit:
      return 2;
    case GradientPrecision::kFloat32:
      break;
  }
  return 0;
}

// Fills the plan's fields about its products; `terms` is gradient_terms().
void set_arithmetic(const gemm::Backend& gemm, const Source& source, int terms, Plan& plan) {
  plan.gemm_library = gemm.library_of(source.states_type(), source.head_type());
  plan.gradient_dtype = core::sums_in_double(source.states_type()) ? DType::kFloat64
                        : terms > 0                                ? DType::kBFloat16
                                                                   : DType::kFloat32;
  plan.gradient_terms = std::max(1, terms);
}

// Returns the rows to cut.
std::span<const int64_t> rows_of(const HiddenProblem& problem, const Computation& computation) {
  if (!computation.forward && computation.kept_rows == 0) return {};
  return problem.active();
}

}  // namespace

Cutter::Cutter(const detail::ContextState& context, const HiddenProblem& problem, const Computation& computation,
               const GradientMatrices& outputs)
    : context_(context),
      problem_(problem),
      source_(problem),
      computation_(computation),
      outputs_(outputs),
      rows_(rows_of(problem, computation)),
      gemm_(context.gemm->for_rows(rows(), source_.states_type(), source_.head_type())),
      weight_apart_(stats::with_tile_types(
          problem, [&](auto types) { return sink::is_summed_apart<typename decltype(types)::Sum>(outputs); })) {
  const bool may_keep_logits =
      computation.forward && computation.backward && context.options.plan != PlanKind::kTwoPass;
  if (may_keep_logits) groups_ = make_row_groups(rows_, computation.groups);
}

bool Cutter::narrow_hidden() const {
  return computation_.backward && outputs_.wants_d_hidden() && stats::with_tile_types(problem_, [&](auto types) {
           return core::is_narrow<typename decltype(types)::Sum>(outputs_.d_hidden.dtype);
         });
}

RunPlan Cutter::cut(PlanKind kind, int64_t chunk_rows, const TileCap& cap, bool approximates) const {
  RunPlan run;
  run.plan.kind = kind;
  run.gemm = &gemm_;
  run.forward = computation_.forward;
  run.backward = computation_.backward;
  run.may_drop_rows = computation_.may_drop_rows;
  run.approximates = approximates;
  run.gradient_terms = gradient_terms(context_, source_);
  chunk_rows = cut_rows(chunk_rows, cap, run);
  run.weight_apart = weight_apart_ && run.keeps_logits() && run.chunk_count() > 1;
  const bool tile_by_tile = weight_apart_ && !run.weight_apart;
  set_splits(gemm_.costs(source_.states_type(), source_.head_type()), measure_chunks(run),
             tile_by_tile ? kWeightTiles : run.grid.vocab_tiles(), run.grid);
  if (run.expected_rows()) run.grid.vocab_ranges = 1;
  run.gather = computation_.may_drop_rows || !run.blocks.all_contiguous();
  run.scatter = run.gather || !each_in_one_piece(run.blocks);
  // Sums of expected rows are rescaled while they are computed, so they cannot be accumulated into the
  // output.
  const bool sums_apart = approximates || (run.expected_rows() && computation_.forward);
  run.hidden_apart = narrow_hidden() || (sums_apart && wants_sums_apart());
  Plan& plan = run.plan;
  plan.tokens = problem_.tokens;
  plan.active_rows = rows();
  plan.hidden_size = run.grid.hidden_size;
  plan.vocab_size = run.grid.vocab_size;
  plan.row_tile = run.grid.row_tile;
  plan.vocab_tile = run.grid.vocab_tile;
  plan.hidden_block = std::min(run.grid.hidden_block, run.grid.hidden_size);
  plan.chunk_rows = std::min(chunk_rows, rows());
  set_arithmetic(gemm_, source_, run.gradient_terms, plan);
  return run;
}

// Sets the tiles, blocks and chunks, and returns the largest number of rows in a chunk.
int64_t Cutter::cut_rows(int64_t chunk_rows, const TileCap& cap, RunPlan& run) const {
  const bool one_pass = run.plan.kind == PlanKind::kOnePass, in_chunks = one_pass && chunk_rows < rows();
  const bool whole_groups = in_chunks && groups_.coupled();
  RowChunks chunks;
  if (whole_groups) {
    chunks = pack_groups(groups_, chunk_rows);
    chunk_rows = chunks.largest;
  }
  const TileUse use = !computation_.backward && !run.expected_rows() ? TileUse::kStatistics
                      : one_pass                                     ? TileUse::kKept
                                                                     : TileUse::kGradients;
  run.grid = make_grid(context_.options, gemm_, cap, source_, use, std::min(rows(), chunk_rows), rows());
  if (run.approximates) widen_to_segments(run.grid);
  if (one_pass && chunk_rows < rows()) {
    const int64_t blocks = div_up(chunk_rows, run.grid.row_tile);
    const int64_t step = source::block_step(any_row_rule(gemm_, source_));
    run.grid.row_tile = std::min(run.grid.row_tile, round_up(div_up(chunk_rows, blocks), step));
    if (!whole_groups) chunk_rows = run.grid.row_tile * blocks;
  }
  set_row_rule(gemm_, source_, computation_.slices, run.grid);
  if (whole_groups) {
    cut_chunks(chunks, source_.breaks(), run);
  } else {
    run.blocks = make_row_blocks(rows_, run.grid.row_tile, run.grid.row_rule, source_.breaks());
    cut_chunks(chunk_rows, run);
  }
  return chunk_rows;
}

void Cutter::set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const {
  Plan& plan = run.plan;
  plan.tiles_alive = static_cast<int>(tiles_alive);
  plan.stored_entries = std::min(run.stored_tiles() * run.grid.vocab_tile, run.grid.vocab_size);
  plan.threads = static_cast<int>(std::min(team, tiles_alive));
  plan.workspace_bytes = computation_.workspace_of(context_, problem_, source_, outputs_, run);
  const TileGrid& grid = run.grid;
  const DType gradient = stats::with_gradient_types(
      problem_, run.gradient_terms, [](auto types) { return DTypeOf<typename decltype(types)::Gradient>::value; });
  plan.blas_bytes = static_cast<size_t>(plan.threads) * internal_bytes(gemm_, source_, gradient, grid.part_sizes());
}

// Returns whether the rows of every block are evenly spaced in d_hidden.
bool Cutter::each_in_one_piece(const RowBlocks& blocks) const {
  if (!computation_.backward || !outputs_.wants_d_hidden()) return true;
  const RowBreaks breaks = source::breaks_of(problem::d_hidden_rows(problem_, outputs_));
  return std::all_of(blocks.blocks.begin(), blocks.blocks.end(), [&](const RowBlock& block) {
    return breaks.evenly_spaced(blocks.rows(block).front(), blocks.rows(block).back());
  });
}

bool Cutter::wants_sums_apart() const {
  return computation_.backward && outputs_.wants_d_hidden() && outputs_.d_hidden_mode == WriteMode::kAccumulate &&
         !narrow_hidden();
}

bool Cutter::halve_tiles(TileCap& cap) const {
  // The plan with the largest tiles.
  const TileUse use = computation_.backward ? TileUse::kKept : TileUse::kStatistics;
  const TileGrid grid = make_grid(context_.options, gemm_, cap, source_, use, rows(), rows());
  return planning::halve_tiles(context_.options, grid, cap);
}

size_t Cutter::reordered_bytes(const RunPlan& run) const {
  size_t most = 0;
  for (int64_t c = 0; c < run.chunk_count(); ++c) {
    most = std::max(most, source::ReorderedStates::bytes_of(source_, gemm_, run.blocks_of(c)));
  }
  return most;
}

}  // namespace logitless::planning
