// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The opponent, for every loss: PlanKind::kDense. The functions of engine/run.h, with all logits in memory.
#pragma once

#include "engine/problem.h"
#include "logitless/context.h"
#include "logitless/plan.h"
#include "logitless/tensors.h"
#include "logitless/token_stats.h"

namespace logitless::dense {

TokenStats run_stats(const Context& context, const engine::Problem& problem, Plan* plan);
TokenStats run_loss(const Context& context, const engine::Problem& problem, TokenLoss& loss, const Gradients& outputs,
                    Plan* plan);
void run_gradients(const Context& context, const engine::Problem& problem, const TokenStats& stats,
                   const TokenGrads& grads, const Gradients& outputs, Plan* plan);
Plan plan(const Context& context, const engine::Problem& problem, const Gradients& outputs);

}  // namespace logitless::dense
