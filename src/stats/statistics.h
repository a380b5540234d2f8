// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The columns of a call's statistics and token gradients.
#pragma once

#include <cstddef>

#include "logitless/token_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::stats {

/// Makes the columns that the request asks for, with the values of rows that take no part. A logp is 0 where
/// the problem has no targets.
void make_stats(const problem::TokenProblem& problem, Columns& columns);
/// Makes expected rows of so many elements.
void make_expected_rows(const problem::TokenProblem& problem, size_t elements, Columns& columns);
/// Makes token gradients with an entry a row for each token gradient that `loss` fills.
void make_grads(const problem::TokenProblem& problem, const TokenLoss& loss, Columns& columns);

}  // namespace logitless::stats
