// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/row_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns whether a row has a token gradient that is not zero; a NaN is not zero.
bool has_gradient(const TokenGrads& grads, int64_t row);

/// Returns the row kernel's scales for `row`, from the formula of dL/da in token_stats.h. Their target is the
/// vocabulary entry itself, not yet a column of a tile.
template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row);

}  // namespace logitless::stats
