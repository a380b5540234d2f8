// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Cross-entropy as a function of token statistics.
#pragma once

#include "core/store.h"
#include "logitless/cross_entropy.h"
#include "logitless/token_stats.h"
#include "loss/reduction.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Return the statistics and the cross weights that the options need. Class weights are the weights of the
/// cross statistic.
StatsRequest stats_request(const CrossEntropy& options);
problem::Cross cross(const CrossEntropy& options);

/// Throws InvalidInput for an option out of range.
void check_options(const CrossEntropy& options);

class CrossEntropyLoss final : public ReducedLoss {
 public:
  /// `offsets`: of the sequences, [B + 1]. The other arguments must outlive this object.
  CrossEntropyLoss(const CrossEntropy& options, std::span<const int64_t> offsets, const problem::TokenProblem& problem,
                   ranks::Totals totals);

  StatsRequest needs() const override { return stats_request(options_); }
  GradsFilled gradients() const override;
  // A weight may be 0, and so may the probability that dft multiplies by.
  bool may_drop_rows() const override {
    return !options_.class_weights.empty() || options_.dft || !token_weights_.empty();
  }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  CrossEntropyResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  double nll_scale(size_t row) const { return mean_.factor(row) * options_.loss_scale; }
  double z_scale(size_t row) const { return z_mean_.factor(row) * options_.loss_scale; }
  double class_weight(int64_t row) const;
  double cross_factor() const;

  const CrossEntropy& options_;
  TokenMean z_mean_;         // of the z-loss; mean_ is of the nll
  core::Array<double> nll_;  // [N], weighted, before reduction
  core::Array<double> z_;    // [N], weighted, before reduction; empty without z-loss
};

}  // namespace logitless::loss
