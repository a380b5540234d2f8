// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These structs are what a schedule takes from its workspace. Each is built twice: by the planner on an arena
// that measures, and by the run on the real one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/arena.h"
#include "core/store.h"
#include "fold/folds.h"
#include "fold/row_walk.h"
#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "sink/call_sinks.h"
#include "sink/hidden_sink.h"
#include "sink/lora_sink.h"
#include "sink/sink.h"
#include "source/packed_states.h"
#include "source/source.h"
#include "stats/tile_kernels.h"

namespace logitless::planning {

using problem::HiddenProblem;
using problem::LogitsProblem;

/// Returns how a pass cuts gradients.
source::PartSizes part_sizes(const TileGrid& grid);
/// Returns what the sinks of a pass need to know of it.
sink::Sizes sink_sizes(const RunPlan& run);

/// The buffers of a pass that folds tiles.
template <class Types>
struct ForwardBuffers {
  using Logit = typename Types::Logit;
  struct PerThread {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]; null when the logits stay
    source::Room gathered;  // [tile_rows]
    source::Scratch products;
    Logit* row = nullptr;  // [sides, vocab_tile]: scratch of folds
  };
  core::Array<PerThread> threads;
  source::PackedStates packed;  // of the chunk's blocks

  /// `folds` takes its partials for the rows of a chunk.
  ForwardBuffers(core::Arena& arena, const Source& source, const RunPlan& run, fold::CallFolds<Types>& folds);
};

/// The buffers of a pass that turns tiles into gradients. The sinks of these take their own.
template <class Types>
struct BackwardBuffers {
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  struct PerThread {
    source::Scratch products;
    Logit* row = nullptr;    // scratch of kernels::GradientArgs
    float* sizes = nullptr;  // [vocab_tile]: kernels::Residuals, where they are kept
  };
  struct Slot {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]: logits, then their gradients
    source::Room gathered;  // [tile_rows]
  };
  core::Array<PerThread> threads;
  // The tiles that are alive, where the logits are computed again.
  core::Array<Slot> slots;
  source::PackedStates packed;  // of the blocks that have gradients, where the same
  source::Room gathered;        // [chunk_rows], where the logits stay
  // Of the tiles that are alive, where residuals are kept: [tiles, row_tile] and twice [tiles, vocab_tile].
  float* row_residuals = nullptr;
  float* column_residuals = nullptr;
  bfloat16* entry_weights = nullptr;
  kernels::RowGradient<Logit>* gradients = nullptr;  // [chunk_rows]
  kernels::PickGradient<Logit>* picks = nullptr;     // of the rows of a chunk
  // [chunk_rows], with a teacher
  kernels::RowDivergence<Logit>* divergences = nullptr;

  BackwardBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source, const RunPlan& run);
};

/// What lives from the walk that sums expected rows until they become d_hidden.
template <class Types>
struct ExpectedSums {
  using Sum = typename Types::Sum;

  double* max = nullptr;  // [chunk_rows]: of the capped logits that are here, which the sums are relative to
  std::array<std::optional<sink::HiddenSink<Sum>>, 2> of_product;  // Source::differentiated()
  std::array<sink::Sink<Sum>*, 2> all = {};                        // of which there are
  size_t count = 0;

  /// Where the sums stand in neither d_hidden nor the workspace, they are given a place later.
  ExpectedSums(core::Arena& arena, const kernels::RowKernels& kernels, const HiddenProblem& problem,
               const Source& source, const RunPlan& run, const GradientMatrices& outputs);
};

/// The buffers of the walk that sums expected rows: tiles become the terms of the sums in place.
template <class Types>
struct ExpectedBuffers : BackwardBuffers<Types> {
  double* row_scales = nullptr;  // [slots, row_tile]

  ExpectedBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source, const RunPlan& run,
                  fold::CallFolds<Types>& folds);
};

/// This many sums of parts of the vocabulary make the mean row of a head.
inline constexpr int64_t kMeanParts = 16;

/// What it takes to make gradients of states of expected rows: those of the hidden states, and behind them
/// those of a LoRA, together Source::width() components.
template <class Sum>
struct SettleBuffers {
  struct PerThread {
    double* total = nullptr;      // [width]
    Sum* sums = nullptr;          // [width]: the same in the type of the sums
    Sum* entry = nullptr;         // [width]: the rows of an entry, or a row of a LoRA's a
    std::byte* stored = nullptr;  // [components]: a row as it is stored
    Sum* states = nullptr;        // [components]: a row of a product, where the head has a softcap
    kernels::PickGradient<double>* picks = nullptr;
  };
  core::Array<PerThread> threads;
  double* mean = nullptr;  // [1 + kMeanParts, width], where gradients of `cross` are summed
  // Where d_lora_a is wanted:
  Sum* lora_states = nullptr;  // [chunk_rows, r]: scale · dU
  std::optional<sink::BehindLora<Sum>> behind;

  SettleBuffers(core::Arena& arena, const sink::SinkInputs& inputs, const GradientMatrices& outputs,
                const RunPlan& run);
};

/// Segments are worked on in waves of so many, or of so many rows of them, whichever are fewer; one segment's
/// rows are gathered so many at a time.
inline constexpr int64_t kWaveSegments = 32;
inline constexpr int64_t kWaveRows = 8192;
inline constexpr int64_t kPartRows = 512;
/// A task adds what a wave makes of so many rows and so many components to d_hidden.
inline constexpr int64_t kHiddenRows = 1024;
inline constexpr int64_t kHiddenColumns = 256;
/// The noise of a sample is estimated from so many rows and so many segments, of which this share of the
/// pairs of a row and a segment is looked at.
inline constexpr int64_t kPilotRows = 64;
inline constexpr int64_t kPilotSegments = 48;
/// What a row's segments share of the variance is found at so many θ, each three times the one before.
inline constexpr int64_t kPilotLevels = 7;
/// Returns how many pairs of a pilot are looked at.
int64_t pilot_pairs(int64_t rows, int64_t segments);

/// Returns whether θ is to be found from a noise, by pilots.
inline bool is_by_noise(const BackwardOptions& options) {
  return options.mode == BackwardMode::kSampled && !(options.theta > 0);
}

/// What the sinks of gradients of chosen segments need to know of a pass.
sink::Sizes segment_sink_sizes(const RunPlan& run);

/// The buffers of a pass that makes gradients of chosen segments.
template <class Types>
struct SegmentBuffers {
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  struct PerThread {
    source::Room gathered;  // [kPartRows]
    source::Scratch products;
    Logit* logits = nullptr;                               // [sides, kPartRows, kSegment]
    Logit* row = nullptr;                                  // scratch of kernels::DivergenceGradientArgs
    kernels::RowGradient<Logit>* gradients = nullptr;      // [kPartRows]
    kernels::RowDivergence<Logit>* divergences = nullptr;  // [kPartRows]; null without a teacher
    int64_t* rows = nullptr;                               // [kPartRows]
    Sum* sums = nullptr;                                   // [kHiddenRows, kHiddenColumns]
    Sum* weights = nullptr;                                // [kSegment, H], of a pilot
    Sum* states = nullptr;                                 // [H], of a pilot
  };
  core::Array<PerThread> threads;
  kernels::RowGradient<Logit>* gradients = nullptr;      // [rows]
  kernels::RowDivergence<Logit>* divergences = nullptr;  // [rows]; null without a teacher
  kernels::PickGradient<Logit>* picks = nullptr;
  int64_t wave_rows = 0;
  Gradient* tiles = nullptr;  // [terms, wave_rows, kSegment]
  int32_t* items = nullptr;   // [wave_rows]
  float* weights = nullptr;   // [wave_rows]
  // Of a pilot:
  float* pilot_weights = nullptr;    // [kPilotRows, segments] or [rows, kPilotSegments]
  Sum* pilot_sums = nullptr;         // [1 + kPilotLevels, kPilotRows, H]
  double* tile_squares = nullptr;    // [wave_rows]: |gradients of logits|^2
  double* state_squares = nullptr;   // [wave_rows]: |states|^2
  double* hidden_squares = nullptr;  // [splits of H, wave_rows]: |their part of d_hidden|^2

  /// `by_noise`: with what a pilot takes.
  SegmentBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source, const RunPlan& run,
                 bool by_noise);
};

/// Returns what a head makes of its products, with its bias in the type of the logits. `kernels` widens
/// it, and is null where the arena only measures.
template <class Logit>
stats::HeadShape<Logit> head_shape(core::Arena& arena, const kernels::RowKernels* kernels, const HeadMatrices& head);
/// Returns the same of the teacher's head, or nothing where there is none.
template <class Logit>
stats::HeadShape<Logit> teacher_shape(core::Arena& arena, const kernels::RowKernels* kernels,
                                      const HiddenProblem& problem) {
  if (!problem.teacher) return {};
  return head_shape<Logit>(arena, kernels, problem.teacher->head);
}

/// Takes the memory where the logits of one chunk stay: [chunk_tile_rows, V], tile by tile, of each side.
template <class Logit>
Logit* take_chunk(core::Arena& arena, const Source& source, const RunPlan& run);

/// Returns the sizes of the walk over the rows of finished logits.
template <class Types>
typename fold::RowWalk<Types>::Sizes sweep_sizes(const LogitsProblem& problem, const SweepPlan& run);

/// These return the bytes of a whole run, whose passes share what they can.
size_t measure_run(const detail::ContextState& context, const HiddenProblem& problem, const Source& source,
                   const Work& work, const RunPlan& run, const GradientMatrices& outputs);
size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run);

}  // namespace logitless::planning
