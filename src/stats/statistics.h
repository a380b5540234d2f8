// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Allocates the columns of a call's statistics and token gradients.
#pragma once

#include <cstddef>

#include "logitless/token_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::stats {

/// Returns the log-probability of a capped logit of a row, from the row's max_logit and log_sum. Equal logits
/// have equal bits, whether they are picks, drawn or among the largest.
inline double logp_of(const problem::TokenProblem& problem, const TokenStats& stats, int64_t row, double capped) {
  const auto i = static_cast<size_t>(row);
  const double below = (capped - stats.max_logit[i]) / problem.logit_temperature(row);
  return (below - stats.log_sum[i]) / problem.logp_temperature(row);
}

/// Allocates the columns that the request asks for, with the values of ignored rows. A logp is 0 if the
/// problem has no targets.
void make_stats(const problem::TokenProblem& problem, Columns& columns);
/// Allocates expected rows of `elements` elements in total.
void make_expected_rows(const problem::TokenProblem& problem, size_t elements, Columns& columns);
/// Allocates the token gradients that `loss` fills, with zeros: `logp` per pick, the others per row.
void make_grads(const problem::TokenProblem& problem, const TokenLoss& loss, Columns& columns);

}  // namespace logitless::stats
