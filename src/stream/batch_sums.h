// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Where ranks have parts of a batch, their gradients of the head are summed at the end of a call.
#pragma once

#include "logitless/context.h"
#include "logitless/logits.h"
#include "problem/hidden_problem.h"
#include "problem/logits_problem.h"

namespace logitless::stream {

/// Sums what d_weight and d_bias hold over the ranks that the problem names, if it does. Throws RankError
/// where these have outputs of other sizes or types.
void sum_over_batch(const Context& context, const problem::HiddenProblem& problem, const Gradients& outputs);
/// Finished logits have no head.
inline void sum_over_batch(const Context&, const problem::LogitsProblem&, const LogitsGradient&) {}

}  // namespace logitless::stream
