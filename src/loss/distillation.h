// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation as a function of token statistics: docs/losses-distillation.md.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/distillation.h"
#include "logitless/token_stats.h"
#include "loss/reduction.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Throws InvalidInput for an option that is out of range, or that has no meaning with the other options or
/// with these targets, for `tokens` rows.
void check_distillation_options(const Distillation& options, const ConstTensor& targets, int64_t tokens);

/// Returns the task for these options, without its picks and the options that are the teacher's own.
problem::Task distillation_task(const Distillation& options);

class DistillationLoss final : public ReducedLoss {
 public:
  /// `offsets`: of the sequences, [B + 1]. The other arguments must outlive this object.
  DistillationLoss(const Distillation& options, std::span<const int64_t> offsets, const problem::TokenProblem& problem,
                   ranks::Totals totals);

  StatsRequest needs() const override { return distillation_task(options_).request; }
  GradsFilled gradients() const override { return {.divergence = true}; }
  // A token weight may be 0.
  bool may_drop_rows() const override { return !token_weights_.empty(); }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  DistillationResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  const Distillation& options_;
};

}  // namespace logitless::loss
