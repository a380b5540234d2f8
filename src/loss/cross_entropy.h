// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy as a function of token statistics, which the fused and the dense path share.
#pragma once

#include <span>

#include "core/store.h"
#include "logitless/cross_entropy.h"
#include "logitless/token_stats.h"
#include "loss/upstream.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// These return what a problem needs to know of the options. Class weights are the weights of the cross
/// statistic.
StatsRequest stats_request(const CrossEntropy& options);
problem::Cross cross(const CrossEntropy& options);

/// Throws InvalidInput for an option out of its range.
void check_options(const CrossEntropy& options);

class CrossEntropyLoss final : public TokenLoss {
 public:
  CrossEntropyLoss(const CrossEntropy& options, const problem::TokenProblem& problem, ranks::Totals totals);

  StatsRequest needs() const override { return stats_request(options_); }
  GradsFilled gradients() const override;
  // The weight of a class may be 0, and so may the probability that dft multiplies with.
  bool may_drop_rows() const override { return !options_.class_weights.empty() || options_.dft; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Sets ∂L/∂loss, which is 1 otherwise: one value, under kNone that of each token; or a span, which under
  /// kNone has one entry per token. The span must outlive evaluate(). Throws InvalidInput.
  void set_upstream(double upstream) { upstream_.set(upstream); }
  void set_upstream(std::span<const double> upstream) {
    upstream_.set(upstream, options_.reduction == Reduction::kNone, problem_);
  }

  /// Returns the loss and metrics of all rows that were evaluated.
  CrossEntropyResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  double class_weight(int64_t row) const;
  double cross_factor() const;
  double factor(int64_t row, const TokenStats& stats) const;
  double nll(int64_t row, const TokenStats& stats) const;
  double z_loss(int64_t row, const TokenStats& stats) const;

  const CrossEntropy& options_;
  const problem::TokenProblem& problem_;
  ranks::Totals totals_;
  Upstream upstream_;
  double nll_scale_ = 1;     // what a token's nll is multiplied with
  double z_scale_ = 1;       // what a token's z-loss is multiplied with
  core::Array<double> nll_;  // [N], neither scaled nor reduced
  core::Array<double> z_;    // [N], neither scaled nor reduced; empty without z-loss
};

}  // namespace logitless::loss
