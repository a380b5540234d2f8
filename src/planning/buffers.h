// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory that a schedule takes from its workspace. Each struct is built twice: by the planner on a
// measuring arena, and by the run on the real one.
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
#include "source/reordered_states.h"
#include "source/source.h"
#include "stats/tile_kernels.h"

namespace logitless::planning {

using problem::HiddenProblem;
using problem::LogitsProblem;

/// Returns the sizes of the parts of gradients in a pass.
source::PartSizes part_sizes(const TileGrid& grid);
/// Returns the sizes that the sinks of a pass need.
sink::Sizes sink_sizes(const RunPlan& run);

/// The buffers of a pass that folds tiles.
template <class Types>
struct ForwardBuffers {
  using Logit = typename Types::Logit;
  struct PerThread {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]; null if the logits are stored
    source::Room gathered;  // [tile_rows]
    source::Scratch products;
    Logit* row = nullptr;  // [sides, vocab_tile]: scratch of folds
  };
  core::Array<PerThread> threads;
  source::ReorderedStates reordered;  // of the chunk's blocks

  /// `folds` takes its partials for the rows of a chunk.
  ForwardBuffers(core::Arena& arena, const Source& source, const RunPlan& run, fold::CallFolds<Types>& folds);
};

/// The buffers of a pass that turns tiles into gradients; the sinks take their own.
template <class Types>
struct BackwardBuffers {
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  struct PerThread {
    source::Scratch products;
    Logit* row = nullptr;    // scratch of kernels::GradientArgs
    float* sizes = nullptr;  // [vocab_tile]: kernels::Residuals, if used
  };
  struct Slot {
    Logit* tile = nullptr;  // [tile_rows, tile_stride]: logits, then their gradients
    source::Room gathered;  // [tile_rows]
  };
  core::Array<PerThread> threads;
  // The tiles in memory, if the logits are recomputed.
  core::Array<Slot> slots;
  source::ReorderedStates reordered;  // blocks with gradients, if the logits are recomputed
  source::Room gathered;              // [chunk_rows], if the logits are stored
  // Per tile in memory, if residuals are summed: [tiles, row_tile], and twice [tiles, vocab_tile].
  float* row_residuals = nullptr;
  float* column_residuals = nullptr;
  bfloat16* entry_weights = nullptr;
  kernels::RowGradient<Logit>* gradients = nullptr;  // [chunk_rows]
  kernels::PickGradient<Logit>* picks = nullptr;     // of the rows of a chunk
  // [chunk_rows], with a teacher
  kernels::RowDivergence<Logit>* divergences = nullptr;

  BackwardBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source, const RunPlan& run);
};

/// The data that lives from the walk that sums expected rows until they become d_hidden.
template <class Types>
struct ExpectedSums {
  using Sum = typename Types::Sum;

  double* max = nullptr;  // [chunk_rows]: maxima of this call's capped logits, subtracted in the sums
  std::array<std::optional<sink::HiddenSink<Sum>>, 2> of_product;  // Source::differentiated()
  std::array<sink::Sink<Sum>*, 2> all = {};                        // the first `count` sinks of of_product
  size_t count = 0;

  /// If the sums are in neither d_hidden nor the workspace, their address is set later.
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

/// The mean row of a head is summed in this many parts of the vocabulary.
inline constexpr int64_t kMeanParts = 16;

/// The buffers for computing gradients of states from expected rows: hidden states, followed by a LoRA's
/// states, Source::width() components in total.
template <class Sum>
struct SettleBuffers {
  struct PerThread {
    double* total = nullptr;      // [width]
    Sum* sums = nullptr;          // [width]: total in the type of the sums
    Sum* entry = nullptr;         // [width]: the rows of an entry, or a row of a LoRA's a
    std::byte* stored = nullptr;  // [components]: a row in its stored type
    Sum* states = nullptr;        // [components]: a row of a product's states, if the head has a softcap
    kernels::PickGradient<double>* picks = nullptr;
  };
  core::Array<PerThread> threads;
  double* mean = nullptr;  // [1 + kMeanParts, width], if `cross` has gradients
  // If d_lora_a is requested:
  Sum* lora_states = nullptr;  // [chunk_rows, r]: scale · dU
  std::optional<sink::BehindLora<Sum>> behind;

  SettleBuffers(core::Arena& arena, const sink::SinkInputs& inputs, const GradientMatrices& outputs,
                const RunPlan& run);
};

/// A wave has at most kWaveSegments segments and kWaveRows rows of segments; one segment's rows are gathered
/// kPartRows at a time.
inline constexpr int64_t kWaveSegments = 32;
inline constexpr int64_t kWaveRows = 8192;
inline constexpr int64_t kPartRows = 512;
/// A task adds the gradients of kHiddenRows rows and kHiddenColumns components of a wave to d_hidden.
inline constexpr int64_t kHiddenRows = 1024;
inline constexpr int64_t kHiddenColumns = 256;
/// The noise of a sample is estimated from this many rows and segments; of their pairs, pilot_pairs() are
/// sampled.
inline constexpr int64_t kPilotRows = 64;
inline constexpr int64_t kPilotSegments = 48;
/// The variance that systematic sampling removes is measured at this many θ, each three times the previous.
inline constexpr int64_t kPilotLevels = 7;
/// Returns the number of pairs that a pilot samples.
int64_t pilot_pairs(int64_t rows, int64_t segments);

/// Returns whether pilots must find θ for a given noise.
inline bool is_by_noise(const BackwardOptions& options) {
  return options.mode == BackwardMode::kSampled && !(options.theta > 0);
}

/// Returns the sizes that the sinks need for gradients of chosen segments.
sink::Sizes segment_sink_sizes(const RunPlan& run);

/// The buffers of a pass that computes gradients of chosen segments.
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
    Sum* weights = nullptr;                                // [kSegment, H], for a pilot
    Sum* states = nullptr;                                 // [H], for a pilot
  };
  core::Array<PerThread> threads;
  kernels::RowGradient<Logit>* gradients = nullptr;      // [rows]
  kernels::RowDivergence<Logit>* divergences = nullptr;  // [rows]; null without a teacher
  kernels::PickGradient<Logit>* picks = nullptr;
  int64_t wave_rows = 0;
  Gradient* tiles = nullptr;  // [terms, wave_rows, kSegment]
  int32_t* items = nullptr;   // [wave_rows]
  float* weights = nullptr;   // [wave_rows]
  // For a pilot:
  float* pilot_weights = nullptr;    // [kPilotRows, segments] or [rows, kPilotSegments]
  Sum* pilot_sums = nullptr;         // [1 + kPilotLevels, kPilotRows, H]
  double* tile_squares = nullptr;    // [wave_rows]: |gradients of logits|^2
  double* state_squares = nullptr;   // [wave_rows]: |states|^2
  double* hidden_squares = nullptr;  // [splits of H, wave_rows]: |part of d_hidden|^2

  /// `by_noise`: includes the memory of a pilot.
  SegmentBuffers(core::Arena& arena, const problem::TokenProblem& problem, const Source& source, const RunPlan& run,
                 bool by_noise);
};

/// Returns the head's softcap and its bias in the type of the logits. `kernels` widens the bias; null if the
/// arena only measures.
template <class Logit>
stats::HeadShape<Logit> head_shape(core::Arena& arena, const kernels::RowKernels* kernels, const HeadMatrices& head);
/// Returns the same for the teacher's head, empty without a teacher.
template <class Logit>
stats::HeadShape<Logit> teacher_shape(core::Arena& arena, const kernels::RowKernels* kernels,
                                      const HiddenProblem& problem) {
  if (!problem.teacher) return {};
  return head_shape<Logit>(arena, kernels, problem.teacher->head);
}

/// Takes the memory for the stored logits of one chunk: [chunk_tile_rows, V] per side, tile by tile.
template <class Logit>
Logit* take_chunk(core::Arena& arena, const Source& source, const RunPlan& run);

/// The sizes of the walk over rows of finished logits.
template <class Types>
typename fold::RowWalk<Types>::Sizes sweep_sizes(const LogitsProblem& problem, const SweepPlan& run);

/// The bytes of a whole run, whose passes share memory.
size_t measure_run(const detail::ContextState& context, const HiddenProblem& problem, const Source& source,
                   const Work& work, const RunPlan& run, const GradientMatrices& outputs);
size_t measure_sweep(const LogitsProblem& problem, const SweepPlan& run);

}  // namespace logitless::planning
