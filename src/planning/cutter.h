// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cuts the work of a call into blocks, tiles and chunks, and measures what a cut takes. Which one is taken is
// the planner's choice.
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
  Cutter(const detail::ContextState& context, const HiddenProblem& problem, const Work& work,
         const GradientMatrices& outputs);

  /// Returns how many rows are cut: all that a forward pass had, so that those that are left find their
  /// places.
  int64_t rows() const { return static_cast<int64_t>(rows_.size()); }
  const Source& source() const { return source_; }
  /// The groups of a loss that one pass may run.
  const RowGroups& groups() const { return groups_; }
  /// Returns whether d_hidden is added to what the caller's holds: each tile would round it once more, and
  /// sums that stand apart are added once.
  bool wants_sums_apart() const;

  /// Returns whether rows have lists of their largest logits, which grow with the rows of a chunk.
  bool makes_lists() const { return problem_.request.top_k > 0; }

  /// Decides everything of a plan but how many tiles are alive. Chunks of whole groups hold at most
  /// `chunk_rows` rows, and other chunks hold that many in full tiles. No tile is above the cap.
  RunPlan cut(PlanKind kind, int64_t chunk_rows, const TileCap& cap) const;
  /// Lowers the cap below the tiles that it led to; returns false where these are the smallest.
  bool halve_tiles(TileCap& cap) const;
  /// Measures the run with a team of `team` threads, or fewer where there are not that many tiles.
  void set_team(int64_t team, int64_t tiles_alive, RunPlan& run) const;
  /// Returns the room for the packed hidden states of any chunk, or 0 where the backend packs none.
  size_t packed_bytes(const RunPlan& run) const;

 private:
  bool narrow_hidden() const;
  bool stands_in_blocks(const RowBlocks& blocks) const;

  const detail::ContextState& context_;
  const HiddenProblem& problem_;
  const Source source_;
  const Work& work_;
  const GradientMatrices& outputs_;
  std::span<const int64_t> rows_;
  const gemm::Backend& gemm_;
  bool weight_apart_;  // a callback gets each tile of d_weight once, and a narrow type is rounded once
  RowGroups groups_;
};

}  // namespace logitless::planning
