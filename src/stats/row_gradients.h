// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/row_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns whether a row has a token gradient that is not zero; a NaN is not zero.
bool has_gradient(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row);

/// Which summands the gradients of rows have besides those of the softmax and of picks.
struct GradientSummands {
  bool entropy = false;
  bool cross = false;
  bool picks = false;  // read only beside a teacher
};
/// Returns those that some row has.
GradientSummands gradient_summands(const TokenGrads& grads);
/// Returns those of one row.
template <class T>
GradientSummands gradient_summands(const kernels::RowGradient<T>& row) {
  return {row.entropy_scale != 0, row.cross_scale != 0, row.softmax_scale != 0};
}

/// Returns what the row kernel needs for `row`, from the formula of dL/da in token_stats.h. The gradients at
/// its picks are written to `picks`, which has an entry for each of them and lives as long as the result.
template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row, kernels::PickGradient<T>* picks);

}  // namespace logitless::stats
