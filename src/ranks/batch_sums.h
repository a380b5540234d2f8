// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where ranks have parts of a batch, their gradients of the head are summed at the end of a call.
#pragma once

#include "logitless/context.h"
#include "logitless/logits.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"
#include "ranks/shared.h"

namespace logitless::ranks {

/// Throws InvalidInput where outputs cannot be summed.
void check_sums(const Gradients& outputs, const Shared& shared);
/// Sums what the gradients of a head hold over Shared::weight_ranks. Throws RankError where these have
/// outputs of other sizes or types.
void sum_over_batch(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs,
                    const Shared& shared);

/// Finished logits have no head.
inline void check_sums(const LogitsGradient&, const Shared&) {}
inline void sum_over_batch(const Context&, const problem::LogitsProblem&, const LogitsGradient&, const Shared&) {}

}  // namespace logitless::ranks
