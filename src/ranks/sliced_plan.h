// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All slices of all ranks use the plan of the largest slice, so that they have the same rows and chunks.
#pragma once

#include <cstddef>

#include "logitless/plan.h"
#include "planning/context_state.h"
#include "planning/run_plan.h"
#include "problem/hidden_problem.h"
#include "ranks/cut.h"

namespace logitless::ranks {

/// Plans `computation` for all slices of the cut. Throws RankError if ranks differ in their inputs or
/// plan.
planning::RunPlan choose_sliced_plan(const detail::ContextState& context, int threads, const Cut& cut,
                                     const problem::HiddenProblem& problem, const planning::Computation& computation,
                                     const GradientMatrices& outputs);
/// Returns the smallest workspace budget per slice with which choose_sliced_plan() accepts the same call.
size_t least_sliced_workspace(const detail::ContextState& context, int threads, const Cut& cut,
                              const problem::HiddenProblem& problem, const planning::Computation& computation,
                              const GradientMatrices& outputs);
/// Returns the plan that this rank reports: vocab_size is the number of its own entries, and workspace_bytes
/// the sum over its slices.
Plan plan_of_rank(const Cut& cut, const problem::HiddenProblem& problem, const planning::RunPlan& run);

}  // namespace logitless::ranks
