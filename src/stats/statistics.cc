// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/statistics.h"

#include <limits>

#include "stats/columns.h"

namespace logitless::stats {
namespace {

void finish_row(const problem::TokenProblem& problem, int64_t row, const kernels::RowStats& folded, TokenStats& stats) {
  const auto i = static_cast<size_t>(row);
  const bool has_target = problem.target(row).has_value();
  const double t = problem.logit_temperature(row);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const bool valid = folded.defined();
  const double log_sum = valid ? folded.log_sum() : nan;
  stats.max_logit[i] = valid ? folded.max : nan;
  stats.log_sum[i] = log_sum;
  if (has_target) {
    stats.logp[i] = ((folded.chosen - stats.max_logit[i]) / t - log_sum) / problem.logp_temperature(row);
  }
  stats.lse[i] = stats.max_logit[i] / t + log_sum;
  if (problem.request.entropy) stats.entropy[i] = log_sum - folded.weighted / (1 + folded.rest);
  if (problem.request.cross) stats.cross[i] = folded.cross - log_sum * folded.cross_mass;
  if (problem.request.argmax) stats.argmax[i] = valid ? folded.argmax : -1;
  if (problem.request.rank) stats.rank[i] = valid && has_target ? 1 : 0;
}

}  // namespace

void combine(const problem::TokenProblem& problem, const Partials& partials) {
  if (partials.segments < 2) return;
  for (size_t r = 0; r < partials.rows.size(); ++r) {
    const auto i = static_cast<int64_t>(r);
    const double scale = problem.inverse_temperature(partials.rows[r]);
    kernels::RowStats& whole = partials.whole(i);
    for (int64_t s = 1; s < partials.segments; ++s) whole = kernels::merge(whole, partials.of(s, i), scale);
  }
}

void make_stats(const problem::TokenProblem& problem, Columns& columns) {
  const auto n = static_cast<size_t>(problem.tokens);
  TokenStats& stats = columns.stats;
  for (auto* column : {&stats.logp, &stats.lse, &stats.max_logit, &stats.log_sum}) *column = columns.take_stats(n, 0.0);
  if (problem.request.entropy) stats.entropy = columns.take_stats(n, 0.0);
  if (problem.request.cross) stats.cross = columns.take_stats(n, 0.0);
  if (problem.request.argmax) stats.argmax = columns.take_stats<int64_t>(n, -1);
  if (problem.request.rank) stats.rank = columns.take_stats<int64_t>(n, 0);
}

void make_grads(const problem::TokenProblem& problem, const TokenLoss& loss, Columns& columns) {
  const auto n = static_cast<size_t>(problem.tokens);
  const TokenLoss::GradsFilled filled = loss.gradients();
  TokenGrads& grads = columns.grads;
  grads.logp = columns.take_grads(n);
  if (filled.lse) grads.lse = columns.take_grads(n);
  if (filled.entropy) grads.entropy = columns.take_grads(n);
  if (filled.cross) grads.cross = columns.take_grads(n);
}

void Finisher::operator()(const Partials& partials) const {
  combine(problem_, partials);
  for (size_t i = 0; i < partials.rows.size(); ++i) {
    finish_row(problem_, partials.rows[i], partials.whole(static_cast<int64_t>(i)), stats_);
  }
}

}  // namespace logitless::stats
