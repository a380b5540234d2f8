// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory of the passes over tiles. The planner and the run take it with the same code, on a measuring
// arena and on the real one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/arena.h"
#include "core/store.h"
#include "fold/folds.h"
#include "sink/sink.h"
#include "source/reordered_states.h"
#include "source/source.h"
#include "stream/pass.h"

namespace logitless::stream {

/// Returns a function that computes the scratch bytes of a product on one thread.
inline auto scratch_of(const gemm::Backend& gemm) {
  return [&gemm](const source::ProductShape& p) { return gemm.scratch_bytes(p.m, p.n, p.k, p.a, p.b); };
}

/// Returns the columns of the widest states: the hidden states, or a LoRA's states if its rank is larger.
inline int64_t widest_states(const source::Source& source) {
  int64_t most = 0;
  for (const source::Product& product : source.differentiated()) most = std::max(most, product.states.cols());
  return most;
}

/// Returns the largest number of picks in a chunk.
inline int64_t most_picks(const problem::TokenProblem& problem, const planning::RunPlan& run) {
  if (problem.picks.offsets.empty()) return problem.picks.ids.empty() ? 0 : run.plan.chunk_rows;
  int64_t most = 0;
  for (int64_t chunk = 0; chunk < run.chunk_count(); ++chunk) {
    int64_t picks = 0;
    for (const int64_t row : run.rows_of(chunk)) picks += problem.pick_end(row) - problem.pick_begin(row);
    most = std::max(most, picks);
  }
  return most;
}

/// Returns the sizes that the sinks of a pass over all tiles need.
inline sink::Sizes sink_sizes(const planning::RunPlan& run) {
  sink::Sizes sizes;
  sizes.part = run.grid.part_sizes();
  sizes.rows = run.plan.chunk_rows;
  sizes.entries = run.grid.vocab_size;
  sizes.threads = run.plan.threads;
  sizes.weight_tiles = planning::kWeightTiles;
  sizes.weight_apart = run.weight_apart;
  sizes.keeps_residuals = run.keeps_residuals();
  sizes.hidden_apart = run.hidden_apart;
  sizes.scatter = run.scatter;
  sizes.states_elsewhere = run.expected_rows();
  return sizes;
}

/// The buffers of a pass that turns tiles into gradients; the sinks take their own.
template <class Types>
struct BackwardBuffers {
  using Logit = typename Types::Logit;
  struct PerThread {
    source::Scratch products;
    Logit* row = nullptr;    // scratch of kernels::GradientArgs
    float* sizes = nullptr;  // [vocab_tile]: Residuals::sizes, if used
  };
  struct Slot {
    Logit* tile = nullptr;          // [tile_rows, tile_stride]: logits, then their gradients
    source::GatherBuffer gathered;  // [tile_rows]
  };
  core::Array<PerThread> threads;
  // tiles in memory, if the logits are recomputed
  core::Array<Slot> slots;
  source::ReorderedStates reordered;  // blocks with gradients, if the logits are recomputed
  source::GatherBuffer gathered;      // [chunk_rows], if the logits are stored
  // For each tile in memory, if residuals are summed: [tiles, row_tile], then [tiles, vocab_tile] twice.
  float* row_residuals = nullptr;
  float* column_residuals = nullptr;
  bfloat16* entry_weights = nullptr;
  kernels::RowGradient<Logit>* gradients = nullptr;      // [chunk_rows]
  kernels::PickGradient<Logit>* picks = nullptr;         // of the rows of a chunk
  kernels::RowDivergence<Logit>* divergences = nullptr;  // [chunk_rows], with a teacher

  BackwardBuffers(core::Arena& arena, const Pass<Types>& pass) {
    const planning::RunPlan& run = pass.run;
    take_threads(arena, pass);
    if (run.keeps_logits()) {
      if (run.gather) gathered = pass.source.take_gather_buffer(arena, run.plan.chunk_rows);
    } else {
      slots.resize(static_cast<size_t>(run.plan.tiles_alive));
      for (Slot& slot : slots) {
        slot.tile = arena.take<Logit>(pass.tile_elements());
        if (run.gather) slot.gathered = pass.source.take_gather_buffer(arena, run.grid.tile_rows);
      }
      reordered = source::ReorderedStates(arena, run.plan.packed_bytes);
    }
    if (run.keeps_residuals()) take_residuals(arena, run);
    gradients = arena.take<kernels::RowGradient<Logit>>(run.plan.chunk_rows);
    picks = arena.take<kernels::PickGradient<Logit>>(most_picks(pass.problem, run));
    if (pass.problem.divergence) divergences = arena.take<kernels::RowDivergence<Logit>>(run.plan.chunk_rows);
  }

 private:
  void take_threads(core::Arena& arena, const Pass<Types>& pass) {
    using Gradient = typename Types::Gradient;
    const planning::TileGrid& grid = pass.run.grid;
    const auto scratch = scratch_of(*pass.run.gemm);
    size_t gemm_bytes = pass.source.most_of_gradients(grid.part_sizes(), DTypeOf<Gradient>::value, scratch);
    if (!pass.run.keeps_logits()) {
      gemm_bytes = std::max(gemm_bytes, pass.source.most_of_logits(grid.tile_rows, grid.vocab_tile, scratch));
    }
    const int64_t tiles = pass.problem.divergence ? 3 : std::is_same_v<Logit, Gradient> ? 1 : 2;
    threads.resize(static_cast<size_t>(pass.run.plan.threads));
    for (PerThread& thread : threads) {
      thread.products = pass.source.take_scratch(arena, gemm_bytes, grid.vocab_tile);
      thread.row = arena.take<Logit>(tiles * grid.vocab_tile);
    }
  }

  void take_residuals(core::Arena& arena, const planning::RunPlan& run) {
    auto tiles = static_cast<int64_t>(slots.size());
    for (int64_t chunk = 0; run.keeps_logits() && chunk < run.chunk_count(); ++chunk) {
      tiles = std::max(tiles, static_cast<int64_t>(run.blocks_of(chunk).size()) * run.grid.vocab_tiles());
    }
    row_residuals = arena.take<float>(tiles * run.grid.row_tile);
    column_residuals = arena.take<float>(tiles * run.grid.vocab_tile);
    entry_weights = arena.take<bfloat16>(tiles * run.grid.vocab_tile);
    for (PerThread& thread : threads) thread.sizes = arena.take<float>(run.grid.vocab_tile);
  }
};

}  // namespace logitless::stream
