// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What the divergences of include/logitless/divergence.h are for the row kernels: which sums, which slopes,
// and what becomes of these. docs/losses.md, "Distillation", has the formulas.
#pragma once

#include <cstdint>

#include "kernels/divergence_kernels.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

/// Returns the form of a task's divergence, and its mixture.
template <class T>
kernels::DivergenceRule<T> divergence_rule(const problem::DivergenceTask& task);

/// Returns the softmax of a row's student and of its teacher, whose log-sum-exps are known.
template <class T>
kernels::RowPair<T> row_pair(const problem::TokenProblem& problem, const TokenStats& stats, int64_t row);

/// Returns what a column weighs in the masses of segments: multiplied with what largest_scale() returns of a
/// row, no less than its |dL/da|.
template <class T>
kernels::PairMass<T> pair_mass(const problem::DivergenceTask& task);

/// Writes value, overlap and mean of a row from its sums over the whole vocabulary.
void finish_divergence(const problem::DivergenceTask& task, const kernels::DivergenceSums& sums, int64_t row,
                       DivergenceStats& stats);

/// Returns what the divergence's slope is multiplied with in dL/da of `row`.
double divergence_scale(const problem::TokenProblem& problem, const TokenGrads& grads, int64_t row);
/// Returns the largest of what the summands of pair_mass() are multiplied with in dL/da of `row`.
double largest_scale(const problem::TokenProblem& problem, const TokenStats& stats, const TokenGrads& grads,
                     int64_t row);

/// Returns what the gradient kernel needs for `row`.
template <class T>
kernels::RowDivergence<T> row_divergence(const problem::TokenProblem& problem, const TokenStats& stats,
                                         const TokenGrads& grads, int64_t row);

}  // namespace logitless::stats
