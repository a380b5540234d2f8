// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The parts of a call that depend on where its logits come from and on how its work is cut. The
// pipeline drives them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "plan/context_state.h"
#include "plan/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/cut.h"
#include "stats/statistics.h"

namespace logitless::stream {

using problem::HiddenProblem;
using problem::LogitsProblem;
using problem::TokenProblem;

/// A source of logits, the schedule of its tiles, and the sinks of their gradients. A chunk is a set
/// of rows whose statistics are known together before the loss sees them.
class Schedule {
 public:
  virtual ~Schedule() = default;

  virtual int64_t chunks() const = 0;
  /// Returns the rows of a chunk that take part, in any order.
  virtual std::span<const int64_t> rows(int64_t chunk) const = 0;

  /// Source and fold: hands the partial statistics of all rows of the chunk to `finish`, and adds
  /// to ranks where these are asked for.
  virtual void fold(int64_t chunk, const stats::Finisher& finish) = 0;
  /// Gradient and sink: makes the gradients of the chunk's logits and hands them to the outputs.
  /// Chunks come in order; a chunk that was not folded has its logits made for this.
  virtual void gradients(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) = 0;
  /// The pipeline calls this after the gradients of the last chunk.
  virtual void finish_gradients() {}

  /// Where it is positive, chunks are small: each is worked on by one thread, and this many threads work on
  /// different ones. Else a team works on one chunk after the other.
  virtual int chunk_team() const { return 0; }
};

/// The schedule of a slice of the vocabulary, whose statistics meet those of other slices. fold() is
/// made of its two parts.
class SliceSchedule : public Schedule {
 public:
  /// Returns the partial statistics of the rows of the chunk, which stay until its next function is called
  /// that is not count_above().
  virtual stats::Partials fold_slice(int64_t chunk) = 0;
  /// Adds to ranks[row] the vocabulary entries of the slice whose logits are larger than the target's.
  /// `partials` are those of fold_slice(), whose whole() is that of the whole vocabulary by now.
  virtual void count_above(int64_t chunk, const stats::Partials& partials, std::span<int64_t> ranks) = 0;
};

/// These allocate a workspace of the size in the plan. All that is given must outlive the schedule.
std::shared_ptr<SliceSchedule> tile_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                             const Gradients& outputs, plan::RunPlan run);
/// Runs ranks::choose_sliced_plan() on this rank's slices.
std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const Gradients& outputs, const ranks::Cut& cut, const plan::RunPlan& run);
std::shared_ptr<Schedule> dense_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                         const Gradients& outputs, const Plan& plan);
std::shared_ptr<Schedule> logits_schedule(const detail::ContextState& context, const LogitsProblem& problem,
                                          const LogitsGradient& dlogits, const plan::SweepPlan& run);

}  // namespace logitless::stream
