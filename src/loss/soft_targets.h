// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy against a distribution per token, as a function of token statistics.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/soft_targets.h"
#include "logitless/token_stats.h"
#include "loss/reduction.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Checked soft targets.
struct SoftRows {
  problem::RowPicks picks;  // sparse: the ids of each row; dense: the rows alone
  bool dense = false;
  core::Array<double> weights;     // [picks], sparse
  problem::Cross cross;            // dense
  core::Array<double> masses;      // [N]: Q; 0 for ignored rows
  core::Array<double> negentropy;  // [N]: Σ q log q, if requested
};

/// Throws InvalidInput for an option that is out of range, or that soft targets do not use.
void check_options(const SoftCrossEntropy& options);

/// Returns the memory of the targets.
core::Array<core::ByteRange> ranges_of(const SoftTargets& targets);

/// Returns the targets for rows of this shape, read by a team of at most `threads`. Throws InvalidInput for
/// invalid targets.
SoftRows check_soft_targets(const SoftTargets& targets, const problem::Shape& shape, bool wants_entropy, int threads);

class SoftCrossEntropyLoss final : public ReducedLoss {
 public:
  /// `rows` without picks and cross, which the problem already has; `offsets`: of the sequences, [B + 1]. The
  /// other arguments must outlive this object.
  SoftCrossEntropyLoss(const SoftCrossEntropy& options, SoftRows rows, std::span<const int64_t> offsets,
                       const problem::TokenProblem& problem, ranks::Totals totals);

  StatsRequest needs() const override { return {.cross = rows_.dense}; }
  GradsFilled gradients() const override { return {.cross = rows_.dense}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  SoftCrossEntropyResult result(const TokenStats& stats, const Plan& plan) const;

  const SoftRows& rows() const { return rows_; }

 private:
  double cross_entropy(int64_t row, const TokenStats& stats) const;
  double divergence(int64_t row, double cross_entropy) const;

  const SoftCrossEntropy& options_;
  SoftRows rows_;
  core::Array<double> losses_;  // [N]: ce
};

}  // namespace logitless::loss
