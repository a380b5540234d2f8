// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Chooses how a call divides its work. Everything that affects bits depends only on shapes, options and the
// budget; only the number of tiles in memory and of threads that work on them depends on the team.
#pragma once

#include <cstddef>
#include <functional>

#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"

namespace logitless::planning {

using problem::HiddenProblem;
using problem::LogitsProblem;

/// Throws InvalidInput if plan one_pass was requested but `computation` is a backward pass without forward
/// pass.
void check_one_pass(const ContextOptions& options, const Computation& computation);

/// Plans `computation` on the active rows. Tile sizes that the context does not set are reduced until
/// the plan fits in the budget. Throws InvalidInput if even the smallest tiles do not fit (the message names
/// the smallest accepted budget), or if the requested plan cannot run.
RunPlan choose_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                    const Computation& computation, const GradientMatrices& outputs);

/// Returns the smallest ContextOptions::workspace_bytes that choose_plan() accepts for the same call,
/// independent of the threads. Takes several times as long as planning, because it plans every tile size down
/// to the smallest.
size_t least_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                       const Computation& computation, const GradientMatrices& outputs);

/// Plans `computation` on finished logits, for `threads` threads, or fewer if the budget lacks scratch for
/// them. Throws InvalidInput if it lacks scratch for a single thread, or if plan one_pass was requested and
/// cannot run.
LogitsPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem,
                       const Computation& computation);

/// Does the same for hidden states whose rows are normalised over sets of token ids; measure(team) returns
/// the workspace of a team. The caller sets Plan::vocab_tile.
Plan set_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
              const Computation& computation, const std::function<size_t(int)>& measure);

/// Returns the smallest ContextOptions::workspace_bytes that choose_plan() accepts for the same call.
size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem,
                       const Computation& computation);

}  // namespace logitless::planning
