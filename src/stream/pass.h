// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "core/matrices.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "sink/call_sinks.h"
#include "source/source.h"
#include "stats/tile_kernels.h"

namespace logitless::stream {

using problem::HiddenProblem;

/// The data that the passes of one call share.
template <class Types>
struct Pass {
  using Logit = typename Types::Logit;

  const detail::ContextState& context;
  const HiddenProblem& problem;
  const source::Source& source;
  const GradientMatrices& outputs;
  const planning::RunPlan& run;
  std::optional<stats::TileKernels<Types>> tiles = {};  // empty if memory is only measured
  Logit* chunk = nullptr;                               // the stored logits of a chunk

  sink::SinkInputs sink_inputs() const { return {*context.kernels, *run.gemm, problem, source}; }
  /// Returns the multiplier of the calling thread.
  source::Multiplier multiplier(const source::Scratch& scratch) const { return {*run.gemm, *context.kernels, scratch}; }
  /// Returns the elements of a tile, over all sides.
  int64_t tile_elements() const { return source.sides() * run.grid.tile_rows * run.grid.tile_stride; }
  /// Returns the address of tile (block, vocab_tile), whose logits are stored; the first block of the chunk
  /// has `chunk_begin` tile rows before it.
  Logit* chunk_tile(const planning::RowBlock& block, int64_t chunk_begin, int64_t vocab_tile) const {
    const int64_t rows_before = (block.tile_begin - chunk_begin) * run.stored_tiles();
    return chunk + source.sides() * (rows_before + vocab_tile * block.tile_rows) * run.grid.tile_stride;
  }
  /// Describes rows [first, first + rows) of a tile at `data`, which has `tile_rows` rows and is in
  /// vocabulary tile j.
  stats::LogitsTile<Logit> tile(const Logit* data, int64_t tile_rows, int64_t first, int64_t rows, int64_t j) const {
    const int64_t stride = run.grid.tile_stride;
    stats::LogitsTile<Logit> out;
    out.data = data + first * stride;
    out.rows = rows;
    out.head_entry = run.grid.first_entry(j);
    out.first_entry = problem.first_entry + out.head_entry;
    out.entries = run.grid.entries(j);
    out.stride = stride;
    if (source.sides() > 1) out.teacher_data = out.data + tile_rows * stride;
    return out;
  }
};

}  // namespace logitless::stream
