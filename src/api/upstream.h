// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The backward half of losses that take ∂L/∂loss as one value, or as one value a token.
#pragma once

#include <cstdint>
#include <span>

#include "api/call.h"
#include "logitless/plan.h"
#include "problem/token_problem.h"
#include "ranks/statement.h"
#include "stats/statistics.h"

namespace logitless::api {

inline void read_upstream(Call&, double) {}
inline void read_upstream(Call& call, std::span<const double> upstream) {
  call.reads(core::range_of("upstream", upstream.data(), upstream.size_bytes()));
}

inline void state_upstream(ranks::Statement& statement, const problem::TokenProblem&, double upstream) {
  statement.say("upstream", upstream);
}
inline void state_upstream(ranks::Statement& statement, const problem::TokenProblem& problem,
                           std::span<const double> upstream) {
  if (upstream.size() == 1) return state_upstream(statement, problem, upstream[0]);
  state_vector(statement, "upstream", problem, upstream);
}

/// Evaluates the loss of a call with its task once more, from the statistics that its forward half has left,
/// and makes its gradients times `upstream`. The statistics have a logp, and those that the loss needs.
template <class Loss, class Upstream>
Plan evaluate_backward(const Call& call, Loss& loss, const TokenStats& stats, const Upstream& upstream) {
  const problem::TokenProblem& problem = call.problem();
  loss.set_upstream(upstream);
  call.state_tokens([&](ranks::Statement& statement) { state_upstream(statement, problem, upstream); });
  problem::check_pick_entries("forward.stats.logp", stats.logp.size(), problem);
  if (loss.gradients().lse) problem::check_entries("forward.stats.lse", stats.lse.size(), problem);
  if (loss.gradients().cross) problem::check_entries("forward.stats.cross", stats.cross.size(), problem);
  if (loss.gradients().outside) {
    problem::check_entries("forward.stats.outside", stats.outside.size(), problem);
    problem::check_entries("forward.stats.outside_max", stats.outside_max.size(), problem);
  }
  stats::Columns columns;
  stats::make_grads(problem, loss, columns);
  loss.evaluate(problem.active(), stats, columns.grads);
  return call.run_gradients(stats, columns.grads);
}

/// Does the backward half of a loss whose forward half left statistics. The token gradients depend on
/// `upstream` in more than a factor; so the loss, which is cheap, is evaluated again.
template <class Batch, class Upstream>
Plan run_backward(Call whole, const Batch& batch, const TokenStats& stats, const Upstream& upstream) {
  return whole.complete([&](Call& call) {
    call.state(Batch::kName, batch.options);
    read_upstream(call, upstream);
    typename Batch::Loss loss = batch.make_loss(call);
    batch.prepare(call, loss);
    return evaluate_backward(call, loss, stats, upstream);
  });
}

}  // namespace logitless::api
