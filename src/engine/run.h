// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One call from its checked problem to its outputs.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/problem.h"
#include "logitless/context.h"
#include "logitless/plan.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::engine {

/// Statistics only.
TokenStats run_stats(const Context& context, const Problem& problem, Plan* plan);

/// Statistics, loss and gradients; statistics and loss alone when no output is asked for.
TokenStats run_loss(const Context& context, const Problem& problem, TokenLoss& loss, const Gradients& outputs,
                    Plan* plan);

/// Gradients from statistics and token gradients.
void run_gradients(const Context& context, const Problem& problem, const TokenStats& stats, const TokenGrads& grads,
                   const Gradients& outputs, Plan* plan);

/// The plan of run_loss().
Plan plan_loss(const Context& context, const Problem& problem, const TokenLoss& loss, const Gradients& outputs);

/// Throws InvalidInput unless `values` has an entry a token.
void check_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem);

/// Throws InvalidInput unless the entry of every row that takes part is finite.
void check_finite_entries(std::string_view name, std::span<const double> values, const TokenProblem& problem);

/// Token gradients with an entry a row for each term that `loss` fills.
TokenGrads empty_grads(const TokenProblem& problem, const TokenLoss& loss);

}  // namespace logitless::engine
