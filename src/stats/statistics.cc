// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "stats/statistics.h"

namespace logitless::stats {

void make_stats(const problem::TokenProblem& problem, Columns& columns) {
  const auto n = static_cast<size_t>(problem.tokens), picks = static_cast<size_t>(problem.pick_entries());
  TokenStats& stats = columns.stats;
  stats.logp = columns.take_stats(picks, 0.0);
  for (auto* column : {&stats.lse, &stats.max_logit, &stats.log_sum}) *column = columns.take_stats(n, 0.0);
  if (problem.request.entropy) stats.entropy = columns.take_stats(n, 0.0);
  if (problem.request.cross) stats.cross = columns.take_stats(n, 0.0);
  if (problem.request.argmax) stats.argmax = columns.take_stats<int64_t>(n, -1);
  if (problem.request.rank) stats.rank = columns.take_stats<int64_t>(n, 0);
  if (const auto k = static_cast<size_t>(problem.request.top_k); k > 0) {
    stats.top_ids = columns.take_stats<int64_t>(n * k, -1);
    stats.top_logps = columns.take_stats(n * k, 0.0);
  }
  if (const auto draws = static_cast<size_t>(problem.request.draws); draws > 0) {
    stats.drawn_ids = columns.take_stats<int64_t>(n * draws, -1);
    stats.drawn_logps = columns.take_stats(n * draws, 0.0);
  }
  if (problem.request.outside) {
    for (auto* column : {&stats.outside, &stats.outside_max}) *column = columns.take_stats(n, 0.0);
  }
  if (problem.request.square_sum) stats.square_sum = columns.take_stats(n, 0.0);
  columns.take_picked(picks);
  if (!problem.divergence) return;
  DivergenceStats& of = stats.divergence;
  for (auto* column : {&of.value, &of.overlap, &of.mean, &of.log_sum, &of.teacher_max_logit, &of.teacher_log_sum}) {
    *column = columns.take_stats(n, 0.0);
  }
  if (problem.divergence->entropy) {
    of.entropy = columns.take_stats(n, 0.0);
    of.teacher_entropy = columns.take_stats(n, 0.0);
  }
  if (problem.divergence->argmax) of.teacher_argmax = columns.take_stats<int64_t>(n, -1);
}

void make_expected_rows(const problem::TokenProblem& problem, size_t elements, Columns& columns) {
  ExpectedRows& rows = columns.stats.expected;
  problem.in_double() ? rows.f64.resize(elements) : rows.f32.resize(elements);
}

void make_grads(const problem::TokenProblem& problem, const TokenLoss& loss, Columns& columns) {
  const auto n = static_cast<size_t>(problem.tokens), picks = static_cast<size_t>(problem.pick_entries());
  const TokenLoss::GradsFilled filled = loss.gradients();
  TokenGrads& grads = columns.grads;
  grads.logp = columns.take_grads(picks);
  if (filled.lse) grads.lse = columns.take_grads(n);
  if (filled.entropy) grads.entropy = columns.take_grads(n);
  if (filled.square_sum) grads.square_sum = columns.take_grads(n);
  if (filled.cross) grads.cross = columns.take_grads(n);
  if (filled.outside) grads.outside = columns.take_grads(n);
  if (filled.divergence) grads.divergence = columns.take_grads(n);
}

}  // namespace logitless::stats
