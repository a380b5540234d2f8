// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory of a walk over finished logits: the planner takes it from a measuring arena.
#pragma once

#include <cstddef>

#include "fold/row_walk.h"
#include "planning/run_plan.h"
#include "problem/logits_problem.h"

namespace logitless::planning {

using problem::LogitsProblem;

/// The sizes of the walk over rows of finished logits.
template <class Types>
typename fold::RowWalk<Types>::Sizes row_walk_sizes(const LogitsProblem& problem, const LogitsPlan& run);

/// Returns the workspace of the walk.
size_t measure_row_walk(const LogitsProblem& problem, const LogitsPlan& run);

}  // namespace logitless::planning
