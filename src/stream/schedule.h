// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The orders of work. A schedule has a source make logits, a walk fold them, and sinks take their gradients;
// which of them there are is not its concern. The pipeline drives it.
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

/// The order in which the tiles of a call are made and used. A chunk is a set of rows whose statistics are
/// known together before the loss sees them.
class Schedule {
 public:
  virtual ~Schedule() = default;

  virtual int64_t chunks() const = 0;
  /// Returns the rows of a chunk that take part, in any order.
  virtual std::span<const int64_t> rows(int64_t chunk) const = 0;

  /// Source, fold, combine and finish: makes the statistics of the rows of a chunk.
  virtual void fold(int64_t chunk, stats::Columns& columns) = 0;
  /// Gradient and sink: makes the gradients of the chunk's logits and hands them to the outputs.
  /// Chunks come in order; a chunk that was not folded has its logits made for this.
  virtual void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) = 0;
  /// Tells whether it can say, while it makes the gradients of the last chunk, which rows of d_weight have
  /// their last values. Ranks of a grid meet in every exchange, in one order, so theirs cannot.
  virtual bool finishes_rows_early() const { return false; }
  /// Says so to `sums` from then on.
  virtual void follow(ranks::BatchSums& /*sums*/) {}
  /// The pipeline calls this after the gradients of the last chunk.
  virtual void finish_gradients() {}
  /// Fills what a plan says of gradients of chosen segments, once these are made.
  virtual void report(Plan& /*plan*/) const {}

  /// Where it is positive, chunks are small: each is worked on by one thread, and this many threads work on
  /// different ones. Else a team works on one chunk after the other.
  virtual int chunk_team() const { return 0; }
};

/// The schedule of a slice of the vocabulary, whose partials meet those of other slices.
class SliceSchedule : public Schedule {
 public:
  /// Visits all tiles of the slice for the rows of a chunk, and leaves partials() combined: row i of the
  /// chunk has the place i. They stay until gradients() is called, or the first walk of another chunk.
  virtual void walk(fold::Walk walk, int64_t chunk, stats::Columns& columns) = 0;
  virtual const fold::CallPartials& partials() const = 0;
};

/// These allocate a workspace of the size in the plan. All that is given must outlive the schedule.
std::shared_ptr<SliceSchedule> tile_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                             const GradientMatrices& outputs, planning::RunPlan run);
/// Runs ranks::choose_sliced_plan() on this rank's slices.
std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const GradientMatrices& outputs, const ranks::Cut& cut,
                                          const planning::RunPlan& run);
std::shared_ptr<Schedule> logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                          const LogitsGradient& dlogits, const planning::SweepPlan& run);
/// These run planning::set_plan().
std::shared_ptr<Schedule> set_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                       const GradientMatrices& outputs, const planning::Work& work, const Plan& plan);
std::shared_ptr<Schedule> set_logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                              const LogitsGradient& dlogits, const Plan& plan);

}  // namespace logitless::stream
