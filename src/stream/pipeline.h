// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The one way from a checked problem to its outputs: source -> fold -> combine -> finish -> loss ->
// gradient -> sink.
#pragma once

#include "core/matrices.h"
#include "logitless/context.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/token_stats.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/shared.h"
#include "stats/columns.h"

namespace logitless::stream {

/// What a run leaves besides its outputs. The token gradients are as the loss filled them, and empty
/// without one.
struct Ran : stats::Columns {
  using Columns::Columns;

  Plan plan;
};

/// Computes the statistics, evaluates the loss unless it is null, and makes the gradients that `outputs`
/// wants, or those of another rank. `returned` says which columns the caller will move out of the result.
Ran run(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
        const ranks::Shared& shared, TokenLoss* loss, stats::Returned returned);
Ran run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
        const ranks::Shared& shared, TokenLoss* loss, stats::Returned returned);

/// Makes the gradients from statistics and token gradients, and returns the plan that ran. It throws
/// InvalidInput where entries are missing.
Plan run_gradients(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
                   const ranks::Shared& shared, const TokenStats& stats, const TokenGrads& grads);
Plan run_gradients(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
                   const ranks::Shared& shared, const TokenStats& stats, const TokenGrads& grads);

/// Returns the plan of run().
Plan plan_run(const Context& context, const problem::HiddenProblem& problem, const GradientMatrices& outputs,
              const ranks::Shared& shared, const TokenLoss* loss, stats::Returned returned);
Plan plan_run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
              const ranks::Shared& shared, const TokenLoss* loss, stats::Returned returned);

}  // namespace logitless::stream
