// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation from a teacher's log-probabilities at sets of ids, as a function of token statistics.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/set_distillation.h"
#include "logitless/token_stats.h"
#include "loss/sequences.h"
#include "loss/set_cells.h"
#include "loss/token_mean.h"
#include "loss/upstream.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Throws InvalidInput for an option that is out of its range, or has no meaning with the others.
void check_set_options(const SetDistillation& options, const ConstTensor& targets, int64_t tokens);

/// Returns what is read of a teacher.
core::Array<core::ByteRange> ranges_of(const SetTeacher& teacher);

/// A checked teacher: the picks of a row are its set, and its target where that is wanted besides.
struct SetRows {
  problem::RowPicks picks;
  // [picks]: log t, as the divergence has it; NaN for a target outside of the set
  core::Array<double> logps;
  core::Array<double> outside;  // [N]: log(1 − T), where there is a tail
  core::Array<double> masses;   // [N]: T
  // How far rounding moves each probability of T, where 1 − T is computed from it; else 0.
  double rounding = 0;
  core::Array<int64_t> target;  // [N]: the pick that is the target, with hard_weight
};

/// Returns the teacher of rows of this shape. `ids` has the target of each row, or kNoTarget where it takes
/// no part, which is then not read; without `ids` each row takes part that has a set. Throws InvalidInput.
SetRows check_set_teacher(const SetTeacher& teacher, const problem::Shape& shape, std::span<const int64_t> ids,
                          const SetDistillation& options);

class SetDistillationLoss final : public TokenLoss {
 public:
  /// `rows` without picks, which the problem has by now; `tokens` are the sequences, and which of their rows
  /// take part. What is given must outlive this.
  SetDistillationLoss(const SetDistillation& options, SetRows rows, SequenceTokens tokens,
                      const problem::TokenProblem& problem, ranks::Totals totals);

  StatsRequest needs() const override;
  GradsFilled gradients() const override { return {.outside = has_tail()}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  void set_upstream(double upstream) { upstream_.set(upstream); }
  void set_upstream(std::span<const double> upstream) {
    upstream_.set(upstream, options_.reduction == Reduction::kNone, problem_);
  }

  /// Returns the loss and metrics of all rows that were evaluated.
  SetDistillationResult result(const TokenStats& stats, const Plan& plan) const;

  const SetRows& rows() const { return rows_; }

 private:
  bool has_tail() const { return options_.outside == OutsideSet::kTail; }
  double divergence_weight(int64_t row) const;
  // Returns the divergence of a row. slopes_ then has its slopes: of the set's picks, and of the tail.
  double compare(int64_t row, const TokenStats& stats);

  const SetDistillation& options_;
  const SetRows rows_;
  const SequenceTokens tokens_;
  const problem::TokenProblem& problem_;
  ranks::Totals totals_;
  const TokenMean mean_;
  Upstream upstream_;
  core::Array<double> student_, teacher_, slopes_;  // of the cells of one row
  core::Array<double> divergences_;                 // [N]
};

}  // namespace logitless::loss
