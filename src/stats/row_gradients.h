// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/row_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns whether a row has a nonzero token gradient; NaN counts as nonzero.
bool has_gradient(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row);

/// Which summands the gradients of rows have, in addition to the softmax and the picks.
struct GradientSummands {
  bool entropy = false;
  bool cross = false;
  bool picks = false;  // used only with a teacher
};
/// Returns the summands that at least one row has.
GradientSummands gradient_summands(const TokenGrads& grads);
/// Returns the summands of one row; `picks` is set if its softmax_scale is not 0.
template <class T>
GradientSummands gradient_summands(const kernels::RowGradient<T>& row) {
  return {row.entropy_scale != 0, row.cross_scale != 0, row.softmax_scale != 0};
}

/// Returns the row kernel's input for `row`, from the formula of dL/da in token_stats.h. Writes the gradients
/// at the row's picks to `picks`, which has one entry per pick and must outlive the result.
template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row, kernels::PickGradient<T>* picks);

}  // namespace logitless::stats
