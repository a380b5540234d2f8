// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A vocabulary that is cut into slices, on this rank and on others, is one schedule: statistics of the slices
// meet before they are finished, and sums of d_hidden before they become an output.
#pragma once

#include <memory>

#include "stream/schedule.h"

namespace logitless::stream {

/// Plans `work` for a problem with a cut: all slices of all ranks work by the plan of the largest one, so
/// that rows and chunks are the same for all. Throws RankError where ranks do not do the same work.
plan::RunPlan choose_sliced_plan(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                                 const plan::Work& work, const Gradients& outputs);
/// Returns the least budget of a slice with which choose_sliced_plan() accepts the same call.
size_t least_sliced_workspace(const detail::ContextState& context, int threads, const HiddenProblem& problem,
                              const plan::Work& work, const Gradients& outputs);

/// Runs such a plan. All that is given must outlive the schedule.
std::shared_ptr<Schedule> sliced_schedule(const detail::ContextState& context, const HiddenProblem& problem,
                                          const Gradients& outputs, const plan::RunPlan& run);

}  // namespace logitless::stream
