// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The ways to compute the gradients of a call on hidden states. The pipeline and the schedules use only this
// interface: a new way is a class in its own file, and one more name in kGradientWays.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tuple>

#include "core/arena.h"
#include "core/matrices.h"
#include "fold/folds.h"
#include "logitless/context.h"
#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "planning/run_plan.h"
#include "ranks/batch_sums.h"
#include "ranks/shared.h"
#include "stream/pass.h"

namespace logitless::stream {

/// What is known about a call before it is planned.
struct CallOnHidden {
  const ContextOptions& options;
  const HiddenProblem& problem;
  const GradientMatrices& outputs;
  const ranks::Shared& shared;
  TokenLoss::GradsFilled filled;  // the token gradients of the loss
  bool keeps_expected_rows;       // TokenStats::expected was received, or is returned
};

/// One way, for one run. When the planner only measures memory, it calls no function that computes or
/// reports, and pass.tiles is not set.
template <class Types>
class GradientWay {
 public:
  virtual ~GradientWay() = default;

  /// Takes the memory that lives as long as the call.
  virtual void take_lasting(core::Arena&) {}
  /// Takes the memory for the gradients of a chunk. Memory taken for other chunks or ways is free again.
  virtual void take(core::Arena& arena) = 0;

  /// Returns whether walk() replaces the first walk over the tiles.
  virtual bool walks() const { return false; }
  virtual void take_walk(core::Arena&, fold::CallFolds<Types>&) {}
  virtual void walk(fold::CallFolds<Types>&, stats::Columns&) {}
  /// Called before the first walk over a chunk, except for slices of a vocabulary.
  virtual void begin_statistics(stats::Columns&) {}
  /// Called once the chunk's statistics are complete, except for slices of a vocabulary.
  virtual void finish_statistics(TokenStats&) {}
  /// Returns the masses that folds must fill for this way, or null.
  virtual const fold::CallMasses* masses() const { return nullptr; }

  /// Computes gradients of a chunk. Returns whether they are complete; if not, the next way computes the
  /// rest.
  virtual bool make(int64_t chunk, const TokenStats& stats, const TokenGrads& grads) = 0;
  /// Called after the last chunk, for the last way whose make() was called.
  virtual void finish() {}
  /// Reports final rows of d_weight to `sums` from now on, if the way can.
  virtual void report_final_rows_to(ranks::BatchSums& /*sums*/) {}
  /// Fills the plan's fields about the way's gradients.
  virtual void report(Plan&) const {}
};

template <class Types>
using WayOfRun = std::shared_ptr<GradientWay<Types>>;
template <class Types>
using MakeWay = WayOfRun<Types> (*)(const Pass<Types>&);

/// One kind of way: which calls it can take, and how it is created.
struct WayKind {
  /// If the way can take the call, sets what the planner must know in `computation`. Throws InvalidInput if
  /// the call's options require the way but it cannot run. Null: the way can take every call.
  void (*ask)(const CallOnHidden& call, planning::Computation& computation);
  /// Returns the way for a run, or null if the run does not use it. The pass must outlive the way.
  std::tuple<MakeWay<kernels::FloatTiles>, MakeWay<kernels::DoubleTiles>, MakeWay<kernels::BFloat16Tiles>> make;
};

/// All kinds, in the order in which they are asked and their gradients are computed.
extern const WayKind kSegmentGradients, kExpectedRowGradients, kTileGradients;
inline constexpr std::array kGradientWays = {&kSegmentGradients, &kExpectedRowGradients, &kTileGradients};

}  // namespace logitless::stream
