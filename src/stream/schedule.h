// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The orders of work. A schedule connects a source of logits, folds and sinks without knowing which ones they
// are; the pipeline drives it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fold/call_partials.h"
#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/batch_sums.h"
#include "ranks/cut.h"

namespace logitless::stream {

using problem::HiddenProblem;
using problem::LogitsProblem;
using problem::TokenProblem;

/// The order in which the tiles of a call are computed and used. A chunk is a set of rows whose statistics
/// are complete before the loss is evaluated on them.
class Schedule {
 public:
  virtual ~Schedule() = default;

  virtual int64_t chunks() const = 0;
  /// Returns the active rows of a chunk, in any order.
  virtual std::span<const int64_t> rows(int64_t chunk) const = 0;

  /// Source, fold, combine and finish: computes the statistics of a chunk's rows.
  virtual void fold(int64_t chunk, stats::Columns& columns) = 0;
  /// Gradient and sink: computes the gradients of the chunk's logits and passes them to the sinks. Chunks
  /// come in order; if a chunk was not folded, its logits are computed here.
  virtual void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) = 0;
  /// Returns whether rows of d_weight can be reported as final while the gradients of the last chunk are
  /// still being computed. Grids of ranks cannot do this, because all their ranks must make every exchange in
  /// the same order.
  virtual bool finishes_rows_early() const { return false; }
  /// Reports final rows to `sums` from now on.
  virtual void report_final_rows_to(ranks::BatchSums& /*sums*/) {}
  /// Called by the pipeline after the gradients of the last chunk.
  virtual void finish_gradients() {}
  /// Fills a plan's fields about sampled or certified gradients, after gradients().
  virtual void report(Plan& /*plan*/) const {}

  /// If positive, chunks are small: one thread processes a chunk, and this many threads work on different
  /// chunks. If 0, a team works on one chunk after the other.
  virtual int chunk_team() const { return 0; }
};

/// The schedule of one slice of the vocabulary. The caller combines its partials with the other slices'
/// partials.
class SliceSchedule : public Schedule {
 public:
  /// Visits all tiles of the slice for the rows of a chunk, and combines partials() over them: row i of the
  /// chunk has place i. The partials are valid until gradients() or the first walk of another chunk.
  virtual void walk(fold::Walk walk, int64_t chunk, stats::Columns& columns) = 0;
  virtual const fold::CallPartials& partials() const = 0;
};

/// Each schedule allocates a workspace of the plan's size. The arguments must outlive it.
std::shared_ptr<SliceSchedule> tile_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                             const GradientMatrices& outputs, planning::RunPlan run);
/// Returns the size of that workspace, by taking the same memory from a measuring arena.
size_t workspace_of_run(const detail::ContextState& context, const HiddenProblem& problem, const source::Source& source,
                        const GradientMatrices& outputs, const planning::RunPlan& run);
/// Runs a plan from ranks::choose_sliced_plan() on this rank's slices.
std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const GradientMatrices& outputs, const ranks::Cut& cut,
                                          const planning::RunPlan& run);
std::shared_ptr<Schedule> logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                          const LogitsGradient& dlogits, const planning::LogitsPlan& run);
/// For rows of hidden states that are normalised over sets of token ids, as planned by set_plan().
std::shared_ptr<Schedule> set_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                       const GradientMatrices& outputs, const planning::Computation& computation,
                                       const Plan& plan);
/// Returns the plan for `threads` threads, or for fewer if the budget is too small for their scratch. Throws
/// InvalidInput if it is too small for one thread.
Plan set_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
              const GradientMatrices& outputs, const planning::Computation& computation);
/// Returns the smallest ContextOptions::workspace_bytes that set_plan() accepts.
size_t least_set_workspace(const detail::ContextState& context, const HiddenProblem& problem,
                           const GradientMatrices& outputs, const planning::Computation& computation);

}  // namespace logitless::stream
