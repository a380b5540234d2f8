// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation from a teacher's log-probabilities at sets of ids, as a function of token statistics.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/set_distillation.h"
#include "logitless/token_stats.h"
#include "loss/reduction.h"
#include "loss/set_cells.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Throws InvalidInput for an option that is out of range, or has no meaning with the other options.
void check_set_options(const SetDistillation& options, const ConstTensor& targets, int64_t tokens);

/// Returns the memory of a teacher.
core::Array<core::ByteRange> ranges_of(const SetTeacher& teacher);

/// A checked teacher. Picks of a row: the id set, plus the target if requested.
struct SetRows {
  problem::RowPicks picks;
  // [picks]: log t as the divergence uses it; NaN for a target outside the set
  core::Array<double> logps;
  core::Array<double> outside;  // [N]: log(1 − T), with a tail
  core::Array<double> masses;   // [N]: T
  // Relative rounding error of each probability of T, if 1 − T is computed from it; else 0.
  double rounding = 0;
  core::Array<int64_t> target;  // [N]: the pick that is the target, with hard_weight
};

/// Returns the teacher for rows of this shape. `ids` has the target of each row, or kNoTarget for ignored
/// rows, which are not read; without `ids` every row with a set is active. Throws InvalidInput.
SetRows check_set_teacher(const SetTeacher& teacher, const problem::Shape& shape, std::span<const int64_t> ids,
                          const SetDistillation& options);

class SetDistillationLoss final : public ReducedLoss {
 public:
  /// `rows` without picks, which the problem already has; `offsets`: of the sequences, [B + 1]. The other
  /// arguments must outlive this object.
  SetDistillationLoss(const SetDistillation& options, SetRows rows, std::span<const int64_t> offsets,
                      const problem::TokenProblem& problem, ranks::Totals totals);

  StatsRequest needs() const override { return {.outside = has_tail()}; }
  GradsFilled gradients() const override { return {.outside = has_tail()}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  SetDistillationResult result(const TokenStats& stats, const Plan& plan) const;

  const SetRows& rows() const { return rows_; }

 private:
  bool has_tail() const { return options_.outside == OutsideSet::kTail; }
  // Returns the divergence of a row, and sets slopes_ to its slopes by the set's picks and by the tail.
  double compare(int64_t row, const TokenStats& stats);

  const SetDistillation& options_;
  SetRows rows_;
  core::Array<double> student_, teacher_, slopes_;  // of the cells of one row
  core::Array<double> divergences_;                 // [N]
};

}  // namespace logitless::loss
