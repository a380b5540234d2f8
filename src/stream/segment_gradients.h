// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of some segments of each row: sampled ones, which are unbiased, and certified ones, whose error
// is bounded (BackwardOptions). A row's segments are chosen by weights, computed from its token gradients and
// the masses that the first walk stored.
#pragma once

#include <optional>
#include <string_view>

#include "core/arena.h"
#include "core/store.h"
#include "fold/segment_masses.h"
#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "planning/buffers.h"
#include "sink/call_sinks.h"
#include "stream/pass.h"
#include "stream/segment_wave.h"

namespace logitless::stream {

/// Returns why segments cannot be chosen for a loss with these token gradients; empty: they can.
std::string_view no_choice_of_segments(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled);

/// The gradients of a call, which has a single chunk.
template <class Types>
class SegmentGradients {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;

  /// The arguments must outlive this object.
  SegmentGradients(const Pass<Types>& pass, const GradientMatrices& outputs, const fold::CallMasses& masses);

  /// Chooses the segments of the rows that have a gradient. Returns false if so many are needed that exact
  /// gradients are cheaper.
  bool choose(core::Arena& arena, const TokenStats& stats, const TokenGrads& grads);
  /// Computes the gradients of the chosen segments and passes them to the outputs.
  void make(core::Arena& arena);
  /// Fills the plan's fields about the choice.
  void report(Plan& plan) const;

 private:
  void find_rows(const TokenStats& stats, const TokenGrads& grads);
  void weigh(const TokenStats& stats, const TokenGrads& grads);
  void sum_cross(int64_t row, core::Array<double>& sums) const;
  double share_at(double theta) const;
  void draw(double theta);
  core::Array<double> certify();
  void bound(const core::Array<double>& dropped);
  double longest_entry(const source::Head& head) const;
  double bound_of_entries() const;

  const Pass<Types>& pass_;
  const GradientMatrices& outputs_;
  const fold::SegmentMasses& softmax_masses_;
  const fold::SegmentMasses& masses_;  // of the pairs; without a teacher softmax_masses_
  const sink::CallSinks<Sum> sinks_;
  std::optional<planning::SegmentBuffers<Types>> buffers_;
  stats::GradientSummands summands_;
  core::Array<int64_t> rows_;    // rows of the call that have a gradient
  core::Array<int32_t> places_;  // of rows_, among the rows whose masses are stored
  core::Array<double> scales_;   // of rows_: the sum of the absolute factors of their distributions
  core::Array<int32_t> kept_;    // number of kept segments per row
  double unit_ = 1;              // the mean of the scales
  Plan said_;
};

}  // namespace logitless::stream
