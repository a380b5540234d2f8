// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/row_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns whether a row has a nonzero token gradient; NaN counts as nonzero.
bool has_gradient(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row);

/// Which summands the gradients of rows have.
struct GradientSummands {
  bool nonlinear = false;  // a gradient that is not linear in p: of the entropy or of Σ p²
  bool cross = false;
  bool softmax = false;  // the softmax or picks; used only with a teacher
};
/// Returns the summands that at least one row has.
GradientSummands gradient_summands(const TokenGrads& grads);
/// Returns the summands of one row.
template <class T>
GradientSummands gradient_summands(const kernels::RowGradient<T>& row) {
  bool softmax = row.softmax_scale != 0;
  for (int32_t pick = 0; pick < row.pick_count && !softmax; ++pick) softmax = row.picks[pick].gradient != 0;
  return {row.entropy_scale != 0 || row.square_scale != 0, row.cross_scale != 0, softmax};
}

/// Returns the row kernel's input for `row`, from the formula of dL/da in token_stats.h. Writes the gradients
/// at the row's picks to `picks`, which has one entry per pick and must outlive the result. If probabilities
/// sum to 1 over the picks, PickGradient::id is a column: the index of the id among the row's distinct ids.
template <class T>
kernels::RowGradient<T> row_gradient(const problem::TokenProblem& problem, const TokenStats& stats,
                                     const TokenGrads& grads, int64_t row, kernels::PickGradient<T>* picks);

}  // namespace logitless::stats
