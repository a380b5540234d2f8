// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/cutter.h"

#include <algorithm>

#include "core/checks.h"
#include "core/integers.h"
#include "planning/arithmetic.h"
#include "planning/buffers.h"
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

// Returns the rows to cut.
std::span<const int64_t> rows_of(const HiddenProblem& problem, const Work& work) {
  if (!work.forward && work.kept_rows == 0) return {};
  return problem.active();
}

}  // namespace

Cutter::Cutter(const detail::ContextState& context, const HiddenProblem& problem, const Work& work,
               const GradientMatrices& outputs)
    : context_(context),
      problem_(problem),
      source_(problem),
      work_(work),
      outputs_(outputs),
      rows_(rows_of(problem, work)),
      gemm_(context.gemm->for_rows(rows(), source_.states_type(), source_.head_type())),
      weight_apart_(stats::with_tile_types(
          problem, [&](auto types) { return sink::is_summed_apart<typename decltype(types)::Sum>(outputs); })) {
  const bool may_keep_logits = work.forward && work.backward && context.options.plan != PlanKind::kTwoPass;
  if (may_keep_logits) groups_ = make_row_groups(rows_, work.groups);
}

bool Cutter::narrow_hidden() const {
  return work_.backward && outputs_.wants_d_hidden() && stats::with_tile_types(problem_, [&](auto types) {
           return core::is_narrow<typename decltype(types)::Sum>(outputs_.d_hidden.dtype);
         });
}

RunPlan Cutter::cut(PlanKind kind, int64_t chunk_rows, const TileCap& cap) const {
  RunPlan run;
  run.gemm = &gemm_;
  const bool whole_groups = kind == PlanKind::kOnePass && groups_.coupled() && chunk_rows < rows();
  RowChunks chunks;
  if (whole_groups) {
    chunks = pack_groups(rows_, groups_, chunk_rows);
    chunk_rows = chunks.largest;
  }
  const bool expected = kind == PlanKind::kExpectedRow;
  const TileUse use = !work_.backward && !expected ? TileUse::kStatistics
                      : kind == PlanKind::kOnePass ? TileUse::kKept
                                                   : TileUse::kGradients;
  set_grid(context_.options, gemm_, cap, source_, use, std::min(rows(), chunk_rows), rows(), run.grid);
  run.chooses_segments = work_.chooses_segments && kind == PlanKind::kTwoPass;
  if (run.chooses_segments) widen_to_segments(run.grid);
  if (kind == PlanKind::kOnePass && chunk_rows < rows()) {
    const int64_t blocks = div_up(chunk_rows, run.grid.row_tile);
    const int64_t step = source::block_step(any_row_rule(gemm_, source_));
    run.grid.row_tile = std::min(run.grid.row_tile, round_up(div_up(chunk_rows, blocks), step));
    if (!whole_groups) chunk_rows = run.grid.row_tile * blocks;
  }
  set_row_rule(gemm_, source_, work_.slices, run.grid);
  if (whole_groups) {
    cut_chunks(chunks, source_.breaks(), run);
  } else {
    run.blocks = make_row_blocks(rows_, run.grid.row_tile, run.grid.row_rule, source_.breaks());
    cut_chunks(chunk_rows, run);
  }
  int64_t row_blocks = 0;
  for (size_t c = 0; c + 1 < run.chunks.size(); ++c) {
    const auto chunk = std::span(run.blocks.blocks).subspan(run.chunks[c], run.chunks[c + 1] - run.chunks[c]);
    if (chunk.empty()) continue;
    row_blocks = std::max(row_blocks, static_cast<int64_t>(chunk.size()));
    const int64_t tile_rows = chunk.back().tile_begin + chunk.back().tile_rows - chunk.front().tile_begin;
    run.chunk_tile_rows = std::max(run.chunk_tile_rows, tile_rows);
  }
  run.weight_apart = weight_apart_ && kind == PlanKind::kOnePass && run.chunk_count() > 1;
  const bool tile_by_tile = weight_apart_ && !run.weight_apart;
  set_splits(row_blocks, tile_by_tile ? kWeightTiles : run.grid.vocab_tiles(), run.grid);
  run.logits_stay = kind == PlanKind::kOnePass;
  run.may_drop_rows = work_.may_drop_rows;
  run.gather = work_.may_drop_rows || !run.blocks.all_contiguous();
  run.hidden_apart = narrow_hidden() || (run.chooses_segments && wants_sums_apart());
  if (expected) {
    run.grid.stretches = 1;
    run.expected_rows = !work_.forward   ? ExpectedRowsIn::kGiven
                        : work_.backward ? ExpectedRowsIn::kHidden
                                         : ExpectedRowsIn::kLeft;
    // Sums that are rescaled while they are computed cannot be accumulated into the output.
    run.hidden_apart |= run.expected_rows == ExpectedRowsIn::kHidden && wants_sums_apart();
  }
  run.gradient_terms = gradient_terms(context_, source_);
  run.scatter = run.gather || !stands_in_blocks(run.blocks);
  Plan& plan = run.plan;
  plan.kind = kind;
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

void Cutter::set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const {
  Plan& plan = run.plan;
  plan.tiles_alive = static_cast<int>(tiles_alive);
  plan.threads = static_cast<int>(std::min(team, tiles_alive));
  plan.workspace_bytes = measure_run(context_, problem_, source_, work_, run, outputs_);
  const TileGrid& grid = run.grid;
  const DType gradient = stats::with_gradient_types(
      problem_, run.gradient_terms, [](auto types) { return DTypeOf<typename decltype(types)::Gradient>::value; });
  plan.blas_bytes = static_cast<size_t>(plan.threads) * internal_bytes(gemm_, source_, gradient, part_sizes(grid));
}

// Returns whether every block lies within one evenly spaced piece of d_hidden.
bool Cutter::stands_in_blocks(const RowBlocks& blocks) const {
  if (!work_.backward || !outputs_.wants_d_hidden()) return true;
  const RowBreaks breaks = source::breaks_of(problem::d_hidden_rows(problem_, outputs_));
  return std::all_of(blocks.blocks.begin(), blocks.blocks.end(), [&](const RowBlock& block) {
    return breaks.same_piece(blocks.rows(block).front(), blocks.rows(block).back());
  });
}

bool Cutter::wants_sums_apart() const {
  return work_.backward && outputs_.wants_d_hidden() && outputs_.d_hidden_mode == WriteMode::kAccumulate &&
         !narrow_hidden();
}

bool Cutter::halve_tiles(TileCap& cap) const {
  TileGrid grid;
  // The plan with the largest tiles.
  const TileUse use = work_.backward ? TileUse::kKept : TileUse::kStatistics;
  set_grid(context_.options, gemm_, cap, source_, use, rows(), rows(), grid);
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
