// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// source -> fold -> combine -> finish -> loss -> gradient -> sink: the one way from a checked problem to its outputs.
#pragma once

#include "logitless/context.h"
#include "logitless/logits.h"
#include "logitless/plan.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"

namespace logitless::stream {

/// Statistics, the loss (null: none), and the gradients that `outputs` wants. `plan`, when given, receives what runs.
TokenStats run(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs, TokenLoss* loss,
               Plan* plan);
TokenStats run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
               TokenLoss* loss, Plan* plan);

/// Gradients from statistics and token gradients. Throws InvalidInput where entries are missing.
void run_gradients(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
                   const TokenStats& stats, const TokenGrads& grads, Plan* plan);
void run_gradients(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
                   const TokenStats& stats, const TokenGrads& grads, Plan* plan);

/// The plan of run().
Plan plan_run(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
              const TokenLoss* loss);
Plan plan_run(const Context& context, const problem::LogitsProblem& problem, const LogitsGradient& outputs,
              const TokenLoss* loss);

}  // namespace logitless::stream
