// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory for gradients of chosen segments, and the sizes of panels and pilots.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/arena.h"
#include "core/integers.h"
#include "core/store.h"
#include "logitless/context.h"
#include "sink/sink.h"
#include "source/source.h"
#include "stream/pass.h"
#include "stream/tile_buffers.h"

namespace logitless::stream {

/// A panel has at most kPanelSegments segments, and at most kPanelRows pairs (row, segment) unless one
/// segment has more. The rows of a segment are gathered kPartRows at a time.
inline constexpr int64_t kPanelSegments = 32;
inline constexpr int64_t kPanelRows = 8192;
inline constexpr int64_t kPartRows = 512;
/// A task adds the gradients of kHiddenRows rows and kHiddenColumns components of a panel to d_hidden.
inline constexpr int64_t kHiddenRows = 1024;
inline constexpr int64_t kHiddenColumns = 256;
/// The noise of a sample is estimated from this many rows and segments; pilot_pairs() of their pairs are
/// sampled.
inline constexpr int64_t kPilotRows = 64;
inline constexpr int64_t kPilotSegments = 48;
/// The variance that systematic sampling removes is measured at this many θ, each three times the previous.
inline constexpr int64_t kPilotLevels = 7;
/// Returns the number of pairs that a pilot samples.
inline int64_t pilot_pairs(int64_t rows, int64_t segments) {
  constexpr int64_t kShare = 100, kLeast = 4096;
  return std::max(rows * segments / kShare, kLeast);
}

/// Returns whether a pilot must find θ for the requested noise.
inline bool is_by_noise(const BackwardOptions& options) {
  return options.mode == BackwardMode::kSampled && !(options.theta > 0);
}

/// Returns the sizes that the sinks need for gradients of chosen segments.
inline sink::Sizes segment_sink_sizes(const planning::RunPlan& run) {
  sink::Sizes sizes = sink_sizes(run);
  sizes.part = {kPartRows, kernels::kSegment, kHiddenColumns, run.grid.hidden_size};
  sizes.weight_tiles = kPanelSegments;
  sizes.keeps_residuals = false;
  sizes.scatter = false;
  return sizes;
}

/// The buffers of a pass that computes gradients of chosen segments.
template <class Types>
struct SegmentBuffers {
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;
  using Gradient = typename Types::Gradient;
  struct PerThread {
    source::GatherBuffer gathered;  // [kPartRows]
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
  int64_t panel_rows = 0;
  Gradient* tiles = nullptr;  // [terms, panel_rows, kSegment]
  int32_t* items = nullptr;   // [panel_rows]
  float* weights = nullptr;   // [panel_rows]
  // For a pilot:
  float* pilot_weights = nullptr;    // [kPilotRows, segments] or [rows, kPilotSegments]
  Sum* pilot_sums = nullptr;         // [1 + kPilotLevels, kPilotRows, H]
  double* tile_squares = nullptr;    // [panel_rows]: |gradients of logits|^2
  double* state_squares = nullptr;   // [panel_rows]: |states|^2
  double* hidden_squares = nullptr;  // [splits of H, panel_rows]: |part of d_hidden|^2

  SegmentBuffers(core::Arena& arena, const Pass<Types>& pass) {
    const planning::RunPlan& run = pass.run;
    const int64_t rows = run.plan.chunk_rows;
    const bool by_noise = is_by_noise(pass.outputs.backward);
    take_threads(arena, pass, by_noise);
    gradients = arena.take<kernels::RowGradient<Logit>>(rows);
    if (pass.problem.divergence) divergences = arena.take<kernels::RowDivergence<Logit>>(rows);
    picks = arena.take<kernels::PickGradient<Logit>>(most_picks(pass.problem, run));
    panel_rows = std::max(rows, std::min(kPanelRows, kPanelSegments * rows));
    tiles = arena.take<Gradient>(std::max(run.gradient_terms, 1) * panel_rows * kernels::kSegment);
    items = arena.take<int32_t>(panel_rows);
    weights = arena.take<float>(panel_rows);
    if (!by_noise) return;
    const int64_t h = pass.source.hidden_size(), segments = core::div_up(run.grid.vocab_size, kernels::kSegment);
    pilot_weights = arena.take<float>(std::max(kPilotRows * segments, rows * kPilotSegments));
    pilot_sums = arena.take<Sum>((1 + kPilotLevels) * kPilotRows * h);
    tile_squares = arena.take<double>(panel_rows);
    state_squares = arena.take<double>(panel_rows);
    hidden_squares = arena.take<double>(core::div_up(h, kHiddenColumns) * panel_rows);
  }

 private:
  // Returns the bytes of the backend's scratch for the products of a pass. Logits have up to kPartRows rows,
  // and d_hidden up to kHiddenRows; both count, because few rows may use a separate backend.
  static size_t scratch_bytes(const Pass<Types>& pass, bool by_noise) {
    const int64_t rows = std::max<int64_t>(pass.run.plan.chunk_rows, 1), part = std::min(kPartRows, rows);
    const DType gradient = DTypeOf<Gradient>::value;
    const auto scratch = scratch_of(*pass.run.gemm);
    source::PartSizes sizes = segment_sink_sizes(pass.run).part;
    sizes.rows = std::min(std::max(kPartRows, kHiddenRows), rows);
    const size_t bytes = std::max(pass.source.most_of_logits(part, kernels::kSegment, scratch),
                                  pass.source.most_of_gradients(sizes, gradient, scratch));
    if (!by_noise) return bytes;
    // A pilot's part of d_weight has one row per vocabulary entry in every layout.
    return std::max(bytes,
                    scratch({kernels::kSegment, pass.source.hidden_size(), part, gradient, pass.source.states_type()}));
  }

  void take_threads(core::Arena& arena, const Pass<Types>& pass, bool by_noise) {
    const source::Source& source = pass.source;
    const size_t bytes = scratch_bytes(pass, by_noise);
    const int64_t states = widest_states(source);
    threads.resize(static_cast<size_t>(pass.run.plan.threads));
    for (PerThread& thread : threads) {
      thread.gathered = source.take_gather_buffer(arena, kPartRows);
      thread.products = source.take_scratch(arena, bytes, kernels::kSegment);
      thread.logits = arena.take<Logit>(source.sides() * kPartRows * kernels::kSegment);
      thread.row = arena.take<Logit>(3 * kernels::kSegment);
      thread.gradients = arena.take<kernels::RowGradient<Logit>>(kPartRows);
      if (pass.problem.divergence) thread.divergences = arena.take<kernels::RowDivergence<Logit>>(kPartRows);
      thread.rows = arena.take<int64_t>(kPartRows);
      thread.sums = arena.take<Sum>(kHiddenRows * std::min(kHiddenColumns, states));
      if (!by_noise) continue;
      thread.weights = arena.take<Sum>(kernels::kSegment * source.hidden_size());
      thread.states = arena.take<Sum>(source.hidden_size());
    }
  }
};

}  // namespace logitless::stream
