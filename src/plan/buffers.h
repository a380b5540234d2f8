// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These structs are what a schedule takes from its workspace. Each is built twice: by the planner on an arena
// that measures, and by the run on the real one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "core/store.h"
#include "core/views.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "plan/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "source/packed_states.h"
#include "source/source.h"
#include "stats/row_walk.h"
#include "stats/tile_kernels.h"

namespace logitless::plan {

using problem::HiddenProblem;
using problem::LogitsProblem;

/// Returns true when an output is wanted in a narrower type than its sums, so that these need a place of
/// their own until the one rounding.
template <class Sum, class Output>
bool is_rounded(const Output& output) {
  return output.data && core::is_narrow<Sum>(output.dtype);
}

/// Returns true when d_weight is summed in a tile of its own and handed on once all rows are in it.
template <class Sum>
bool needs_weight_tiles(const Gradients& outputs) {
  return outputs.weight_sink || is_rounded<Sum>(outputs.d_weight);
}

/// This many weight tiles are summed at the same time: while one is finished, the next one fills.
inline constexpr int64_t kWeightTiles = 2;

/// Returns how a pass cuts gradients.
source::PartSizes part_sizes(const TileGrid& grid);

/// The buffers of a pass that folds tiles.
template <class Types>
struct ForwardBuffers {
  using Logit = typename Types::Logit;
  struct PerThread {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]; null when the logits stay
    source::Room gathered;  // [tile_rows]
    source::Scratch products;
    typename stats::TileKernels<Types>::FoldScratch fold;  // of row_tile rows
    Logit* chosen = nullptr;                               // [row_tile], where ranks are wanted
    int64_t* above = nullptr;                              // [row_tile], the same
  };
  core::Array<PerThread> threads;
  kernels::RowStats* partials = nullptr;  // [segments, chunk_rows]
  source::PackedStates packed;            // of the chunk's blocks

  ForwardBuffers(core::Arena& arena, const HiddenProblem& problem, const Source& source, const RunPlan& run);
};

/// The buffers of a pass that turns tiles into gradients and hands these to the sinks.
template <class Types>
struct BackwardBuffers {
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  struct PerThread {
    source::Scratch products;
    Logit* row = nullptr;                              // scratch of kernels::GradientArgs
    Sum* scatter = nullptr;                            // [row_tile, hidden_block]
    kernels::RowGradient<Logit>* gradients = nullptr;  // [row_tile]: those of one tile
  };
  struct Slot {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]: logits, then their gradients
    source::Room gathered;  // [tile_rows]
  };
  core::Array<PerThread> threads;
  // The tiles that are alive, where the logits are computed again.
  core::Array<Slot> slots;
  source::PackedStates packed;                       // of the blocks that have gradients, where the same
  source::Room gathered;                             // [chunk_rows], where the logits stay
  kernels::RowGradient<Logit>* gradients = nullptr;  // [chunk_rows], target = vocabulary entry
  Sum* d_hidden = nullptr;                           // [chunk_rows, H] sums of a d_hidden that are apart
  Sum* d_weight[kWeightTiles] = {};                  // [vocab_tile, H] or [H, vocab_tile] each

  BackwardBuffers(core::Arena& arena, const Source& source, const RunPlan& run, const Gradients& outputs);
};

/// Returns the bias in the type of the logits, or null without one. `kernels` widens it, and is null where
/// the arena only measures.
template <class Logit>
const Logit* widened_bias(core::Arena& arena, const kernels::RowKernels* kernels, const HiddenProblem& problem);

/// Takes [V] sums for a narrow d_bias, which live until the last chunk is done; returns null when d_bias is
/// wide or not wanted.
template <class Sum>
Sum* take_bias_sums(core::Arena& arena, const HiddenProblem& problem, const Gradients& outputs);

/// Takes the memory where the logits of one chunk stay: [chunk_tile_rows, V], tile by tile.
template <class Logit>
Logit* take_chunk(core::Arena& arena, const RunPlan& run);

/// The buffers of plan dense.
template <class Types>
struct DenseBuffers {
  typename Types::Logit* logits = nullptr;  // [N, V], then their gradients
  source::Scratch products;
  core::Array<typename stats::RowWalk<Types>::Scratch> scratch;  // one a thread
  // Outputs that are summed apart use these sums one after another.
  typename Types::Sum* sums = nullptr;
  source::Room gathered;  // [N], where no product can take the states in place

  /// `gradient` is the type of the gradients of the logits.
  DenseBuffers(core::Arena& arena, const gemm::Backend& gemm, const HiddenProblem& problem, const Source& source,
               DType gradient, int threads, const Gradients& outputs);
};
/// Plan dense sums d_weight this many vocabulary entries at a time where it needs weight tiles.
inline constexpr int64_t kDenseWeightTile = 4096;

/// Takes the scratch of a walk over finished logits, one for each thread.
template <class Types>
core::Array<typename stats::RowWalk<Types>::Scratch> take_sweep(core::Arena& arena, const LogitsProblem& problem,
                                                                const SweepPlan& run);

/// These return the bytes of a whole run, whose passes share what they can.
size_t measure_run(const HiddenProblem& problem, const Source& source, const Work& work, const RunPlan& run,
                   const Gradients& outputs);
size_t measure_dense(const gemm::Backend& gemm, const HiddenProblem& problem, const Source& source, DType gradient,
                     int threads, const Gradients& outputs);
size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run);

}  // namespace logitless::plan
