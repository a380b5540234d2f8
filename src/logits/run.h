// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "logitless/context.h"
#include "logitless/token_stats.h"
#include "logits/problem.h"

namespace logitless::logits {

/// Statistics, then `loss` (null: none) and, where problem.dlogits is set, the gradient.
TokenStats run(const Context& context, const Problem& problem, TokenLoss* loss);

}  // namespace logitless::logits
