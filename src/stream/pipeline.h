// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// source -> fold -> combine -> finish -> loss -> gradient -> sink: the one way from a checked problem to its
// outputs.
#pragma once

#include "logitless/context.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "stats/columns.h"

namespace logitless::stream {

/// What a run leaves besides its outputs. The token gradients are as the loss filled them, empty without one.
struct Ran : stats::Columns {
  Plan plan;
};

/// Statistics, the loss (null: none), and the gradients that `outputs` wants.
Ran run(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs, TokenLoss* loss);
Ran run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs, TokenLoss* loss);

/// Gradients from statistics and token gradients. Throws InvalidInput where entries are missing. Returns what
/// ran.
Plan run_gradients(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
                   const TokenStats& stats, const TokenGrads& grads);
Plan run_gradients(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
                   const TokenStats& stats, const TokenGrads& grads);

/// The plan of run().
Plan plan_run(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
              const TokenLoss* loss);
Plan plan_run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
              const TokenLoss* loss);

}  // namespace logitless::stream
