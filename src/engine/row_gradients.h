// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/problem.h"
#include "logitless/token_stats.h"
#include "rows/row_kernels.h"

namespace logitless::engine {

/// Whether a row has a token gradient that is not zero; a NaN is not zero.
bool has_gradient(const TokenGrads& grads, int64_t row);

/// The row kernel's terms for `row`, from the formula of dL/da in token_stats.h. The target is the word itself.
template <class T>
rows::RowGradient<T> row_gradient(const TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads,
                                  int64_t row);

}  // namespace logitless::engine
