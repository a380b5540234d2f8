// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Translates the divergences of include/logitless/divergence.h for the row kernels (which sums, which slopes)
// and computes the statistics from the kernels' sums. docs/losses-distillation.md has the formulas.
#pragma once

#include <cstdint>

#include "kernels/divergence_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns the form of a task's divergence, with its slope and the weights of its mixture.
template <class T>
kernels::DivergenceRule<T> divergence_rule(const problem::DivergenceTask& task);

/// Returns the softmax of a row's student and of its teacher. Their log-sum-exps must be in `stats`.
template <class T>
kernels::RowPair<T> row_pair(const problem::TokenProblem& problem, const TokenStats& stats, int64_t row);

/// Returns the column weights for the masses of segments. Multiplied by largest_scale() of a row, a column's
/// weight is at least its |dL/da|.
template <class T>
kernels::PairMass<T> pair_mass(const problem::DivergenceTask& task);

/// Writes the value, overlap and mean of a row from its sums over the whole vocabulary.
void finish_divergence(const problem::DivergenceTask& task, const kernels::DivergenceSums& sums, int64_t row,
                       DivergenceStats& stats);

/// Returns the factor of the divergence's slope in dL/da of `row`.
double divergence_scale(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row);
/// Returns the largest factor of the summands of pair_mass() in dL/da of `row`.
double largest_scale(const problem::TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads,
                     int64_t row);

/// Returns the gradient kernel's input for `row`.
template <class T>
kernels::RowDivergence<T> row_divergence(const problem::TokenProblem& problem, const TokenStats& stats,
                                         const TokenGrads& grads, int64_t row);

}  // namespace logitless::stats
