// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy against a distribution a token, as a function of token statistics.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/soft_targets.h"
#include "logitless/token_stats.h"
#include "loss/upstream.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// What is kept of checked soft targets.
struct SoftRows {
  problem::RowPicks picks;  // sparse: the ids of each row; dense: the rows alone
  bool dense = false;
  core::Array<double> weights;     // [picks], sparse
  problem::Cross cross;            // dense
  core::Array<double> masses;      // [N]: Q; 0 for rows that take no part
  core::Array<double> negentropy;  // [N]: Σ q log q, where it is wanted
};

/// Throws InvalidInput for an option out of its range, or one that soft targets have no use for.
void check_options(const SoftCrossEntropy& options);

/// Returns what is read of the targets.
core::Array<core::ByteRange> ranges_of(const SoftTargets& targets);

/// Returns the targets of rows of this shape, which it reads on a team of at most `threads`. Throws
/// InvalidInput for targets that are wrong.
SoftRows check_soft_targets(const SoftTargets& targets, const problem::Shape& shape, bool wants_entropy, int threads);

class SoftCrossEntropyLoss final : public TokenLoss {
 public:
  /// `rows` without picks and cross, which the problem has by now. What is given must outlive this.
  SoftCrossEntropyLoss(const SoftCrossEntropy& options, SoftRows rows, const problem::TokenProblem& problem,
                       ranks::Totals totals);

  StatsRequest needs() const override { return {.cross = rows_.dense}; }
  GradsFilled gradients() const override { return {.cross = rows_.dense}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Sets ∂L/∂loss, which is 1 otherwise: one value, under kNone that of each token; or a span, which under
  /// kNone has one entry per token. The span must outlive evaluate(). Throws InvalidInput.
  void set_upstream(double upstream) { upstream_.set(upstream); }
  void set_upstream(std::span<const double> upstream) {
    upstream_.set(upstream, options_.reduction == Reduction::kNone, problem_);
  }

  /// Returns the loss and metrics of all rows that were evaluated.
  SoftCrossEntropyResult result(const TokenStats& stats, const Plan& plan) const;

  const SoftRows& rows() const { return rows_; }

 private:
  double cross_entropy(int64_t row, const TokenStats& stats) const;
  double divergence(int64_t row, double cross_entropy) const;

  const SoftCrossEntropy& options_;
  const SoftRows rows_;
  const problem::TokenProblem& problem_;
  ranks::Totals totals_;
  Upstream upstream_;
  double scale_ = 1;            // what a token's loss is multiplied with
  core::Array<double> losses_;  // [N]: ce, neither scaled nor reduced
};

}  // namespace logitless::loss
