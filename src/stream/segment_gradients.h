// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Gradients of some segments of each row: sampled ones, whose expectation is exact, and certified ones, whose
// error is bounded (BackwardOptions). Which segments a row takes follows from what its tokens' gradients make
// of the masses that the first walk has left.
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

/// Returns why segments cannot be chosen for a loss whose token gradients are these, or nothing.
std::string_view no_choice_of_segments(const problem::HiddenProblem& problem, const TokenLoss::GradsFilled& filled);

/// The gradients of one call, which has one chunk.
template <class Types>
class SegmentGradients {
 public:
  using Sum = typename Types::Sum;
  using Logit = typename Types::Logit;

  /// What is given must outlive this.
  SegmentGradients(const Pass<Types>& pass, const GradientMatrices& outputs, const fold::CallMasses& masses);

  /// Chooses the segments of the rows that have a gradient. False: they are so many that exact gradients cost
  /// less.
  bool choose(core::Arena& arena, const TokenStats& stats, const TokenGrads& grads);
  /// Makes their gradients and hands them to the outputs.
  void make(core::Arena& arena);
  /// Fills what a plan says of the choice.
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
  const fold::SegmentMasses& masses_;  // of the pairs: those of the softmax, or with a teacher those of both
  const sink::CallSinks<Sum> sinks_;
  std::optional<planning::SegmentBuffers<Types>> buffers_;
  stats::GradientSummands summands_;
  core::Array<int64_t> rows_;    // of the call, that have a gradient
  core::Array<int32_t> places_;  // of these, among the rows whose masses are kept
  core::Array<double> scales_;   // of these: the sum of what their probabilities are multiplied with
  core::Array<int32_t> kept_;    // how many segments of each are taken
  double unit_ = 1;              // the mean of the scales
  Plan said_;
};

}  // namespace logitless::stream
