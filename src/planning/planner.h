// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Chooses how a call cuts its work. All that decides about bits follows from shapes, options and the budget;
// only how many tiles are alive at once, and how many threads work on them, follows from the threads.
#pragma once

#include <cstddef>

#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"

namespace logitless::planning {

using problem::HiddenProblem;
using problem::LogitsProblem;

/// Throws InvalidInput where plan one_pass was asked for and `work` is gradients of their own, which come
/// after the forward pass.
void check_one_pass(const ContextOptions& options, const Work& work);

/// Plans `work` on the rows that take part. Tiles that the context does not fix become smaller where the
/// budget holds none of the usual size. It throws InvalidInput when the budget does not hold the smallest
/// either (the message names the least budget that is accepted), or when a plan that was asked for cannot
/// run.
RunPlan choose_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                    const GradientMatrices& outputs);

/// Returns the least ContextOptions::workspace_bytes with which choose_plan() accepts the same call; it does
/// not depend on the threads. It takes several times as long as a plan: every size of tile down to the
/// smallest is planned.
size_t least_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem, const Work& work,
                       const GradientMatrices& outputs);

/// Plans `work` on finished logits, for `threads` threads or as many as the budget holds the scratch of. It
/// throws InvalidInput when it does not hold that of one thread, or when plan one_pass was asked for and
/// cannot run.
SweepPlan choose_plan(const detail::ContextState& context, int threads, const LogitsProblem& problem, const Work& work);

/// Returns the least ContextOptions::workspace_bytes with which choose_plan() accepts the same call.
size_t least_workspace(const detail::ContextState& context, const LogitsProblem& problem, const Work& work);

}  // namespace logitless::planning
