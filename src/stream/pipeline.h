// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs a checked problem: source -> fold -> combine -> finish -> loss -> gradient -> sink.
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

/// The result of a run: statistics, the loss's token gradients (empty without a loss) and the plan. Gradients
/// go to the outputs.
struct Outcome : stats::Columns {
  using Columns::Columns;

  Plan plan;
};

/// Each function takes a problem::HiddenProblem with GradientMatrices, or a problem::LogitsProblem with a
/// LogitsGradient.

/// Computes the statistics, evaluates the loss unless it is null, and computes the gradients requested by
/// `outputs` or by another rank. `returned` lists the columns that the caller moves out of the result.
template <class Problem, class Outputs>
Outcome run(const Context& context, const Problem& problem, const Outputs& outputs, const ranks::Shared& shared,
            TokenLoss* loss, stats::Returned returned);

/// Computes the gradients from statistics and token gradients, and returns the plan that ran. Throws
/// InvalidInput if entries are missing.
template <class Problem, class Outputs>
Plan run_gradients(const Context& context, const Problem& problem, const Outputs& outputs, const ranks::Shared& shared,
                   const TokenStats& stats, const TokenGrads& grads);

/// Returns the plan of run().
template <class Problem, class Outputs>
Plan plan_run(const Context& context, const Problem& problem, const Outputs& outputs, const ranks::Shared& shared,
              const TokenLoss* loss, stats::Returned returned);

}  // namespace logitless::stream
