// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Divides the work of a call into blocks, tiles and chunks, and measures the memory of such a cut. The
// planner chooses among cuts.
#pragma once

#include <cstdint>
#include <span>

#include "gemm/gemm.h"
#include "planning/context_state.h"
#include "planning/row_groups.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "source/source.h"

namespace logitless::planning {

using problem::HiddenProblem;

/// The arguments of the constructor must outlive it.
class Cutter {
 public:
  Cutter(const detail::ContextState& context, const HiddenProblem& problem, const Computation& computation,
         const GradientMatrices& outputs);

  /// Returns the number of rows that are divided: all rows of the forward pass, even in a backward call, so
  /// that rows with gradients keep their places.
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const Source& source() const { return source_; }
  /// The groups of the loss, if one pass may run.
  const RowGroups& groups() const { return groups_; }
  /// Returns whether d_hidden is added to the caller's content. Its sums are then kept apart if they fit,
  /// because the content would otherwise be rounded once per tile.
  bool wants_sums_apart() const;

  /// Returns whether rows have lists of their largest logits or of draws, whose size grows with the rows of a
  /// chunk.
  bool makes_lists() const { return problem_.request.top_k > 0 || problem_.request.draws > 0; }

  /// Fills a plan except for the number of tiles in memory. Chunks of whole groups have at most `chunk_rows`
  /// rows; other chunks have that many in full tiles. No tile exceeds the cap.
  RunPlan cut(PlanKind kind, int64_t chunk_rows, const TileCap& cap, bool approximates = false) const;
  /// Lowers the cap below the current tiles; returns false if these are the smallest.
  bool halve_tiles(TileCap& cap) const;
  /// Measures the run with a team of `team` threads, or fewer if there are fewer tiles.
  void set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const;
  /// Returns the memory for the reordered hidden states of the largest chunk, or 0 if none are reordered.
  size_t reordered_bytes(const RunPlan& run) const;

 private:
  int64_t cut_rows(int64_t chunk_rows, const TileCap& cap, RunPlan& run) const;
  bool narrow_hidden() const;
  bool each_in_one_piece(const RowBlocks& blocks) const;

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const Source source_;
  const Computation& computation_;
  const GradientMatrices& outputs_;
  std::span<const int64_t> rows_;
  const gemm::Backend& gemm_;
  bool weight_apart_;  // a callback gets each tile of d_weight once; a narrow type is rounded once
  RowGroups groups_;
};

}  // namespace logitless::planning
