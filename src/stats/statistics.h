// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This makes the statistics of the API from partial ones: it combines them, then finishes them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/row_stats.h"
#include "logitless/token_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::stats {

/// Partial statistics of some rows: those of row rows[i] over vocabulary segment s stand at data[s
/// * rows.size() + i]. Segments follow one another in the vocabulary.
struct Partials {
  kernels::RowStats* data = nullptr;
  int64_t segments = 0;
  std::span<const int64_t> rows = {};

  kernels::RowStats& of(int64_t segment, int64_t i) const {
    return data[segment * static_cast<int64_t>(rows.size()) + i];
  }
  /// Returns those of the whole vocabulary, once they are combined.
  kernels::RowStats& whole(int64_t i) const { return of(0, i); }
};

/// The step between fold and finish. It merges the partials of each row, in the order of the segments
/// whatever the number of threads, and leaves the result in Partials::whole(). Several threads may call it at
/// once, for different rows.
void combine(const problem::TokenProblem& problem, const Partials& partials);

/// Makes the statistics that the request asks for, [N] each, with the values of rows that take no part.
void make_stats(const problem::TokenProblem& problem, Columns& columns);
/// Makes token gradients with an entry a row for each token gradient that `loss` fills.
void make_grads(const problem::TokenProblem& problem, const TokenLoss& loss, Columns& columns);

/// The steps between folded tiles and the statistics of a call: combine, then finish. A call fills
/// the entries of the rows whose partials it is given; any thread may call it, for different rows. A logp is
/// 0 where the problem has no targets. A rank is 1, or 0 where it is undefined, until the vocabulary entries
/// above the target are added.
class Finisher {
 public:
  /// Everything that is given must outlive this. `stats` is made by make_stats().
  Finisher(const problem::TokenProblem& problem, TokenStats& stats) : problem_(problem), stats_(stats) {}

  void operator()(const Partials& partials) const;
  /// Returns the ranks of all rows, [N], to which vocabulary entries above their targets are added.
  std::span<int64_t> ranks() const { return stats_.rank; }

 private:
  const problem::TokenProblem& problem_;
  TokenStats& stats_;
};

}  // namespace logitless::stats
