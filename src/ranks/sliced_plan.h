// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All slices of all ranks work by the plan of the largest one, so that rows and chunks are the same for all.
#pragma once

#include <cstddef>

#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "ranks/cut.h"

namespace logitless::ranks {

/// Plans `work` for all slices of the cut. Throws RankError where ranks do not do the same work.
planning::RunPlan choose_sliced_plan(const detail::ContextState& context, int threads, const Cut& cut,
                                     const problem::HiddenProblem& problem, const planning::Work& work,
                                     const GradientMatrices& outputs);
/// Returns the least budget of a slice with which choose_sliced_plan() accepts the same call.
size_t least_sliced_workspace(const detail::ContextState& context, int threads, const Cut& cut,
                              const problem::HiddenProblem& problem, const planning::Work& work,
                              const GradientMatrices& outputs);
/// Returns what this rank, with its own slices, runs of such a plan.
Plan plan_of_rank(const Cut& cut, const problem::HiddenProblem& problem, const planning::RunPlan& run);

}  // namespace logitless::ranks
