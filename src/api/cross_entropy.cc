// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/cross_entropy.h"
#include "core/store.h"

#include <algorithm>
#include <utility>

#include "api/call.h"
#include "logitless/dense.h"
#include "logitless/logits.h"
#include "loss/cross_entropy.h"
#include "stats/statistics.h"

namespace logitless {
namespace {

using api::Call;

// Gives the call its task. The loss keeps references to the call's problem and to the options.
loss::CrossEntropyLoss make_loss(Call& call, const Targets& targets, const CrossEntropyOptions& options) {
  loss::check_options(options);
  call.set_task({.options = options.token,
                 .request = loss::stats_request(options),
                 .targets = problem::row_targets(call.words(targets, options.token)),
                 .prior = loss::prior(options),
                 .reads = {core::range_of("targets", targets)}});
  return loss::CrossEntropyLoss(options, call.problem());
}

// `stats`, when given, receives what the backward half needs.
CrossEntropyResult run(Call call, const Targets& targets, const CrossEntropyOptions& options,
                       TokenStats* stats = nullptr) {
  loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  stream::Ran ran = call.run(&loss);
  CrossEntropyResult result = loss.result(ran.stats, ran.plan);
  if (stats) *stats = std::move(ran.stats);
  return result;
}

void check_upstream(const CrossEntropyOptions& options, const problem::TokenProblem& problem,
                    std::span<const double> upstream) {
  const bool per_token = options.reduction == Reduction::kNone;
  const int64_t wanted = per_token ? problem.tokens : 1;
  if (static_cast<int64_t>(upstream.size()) != wanted) {
    core::fail("upstream has ", upstream.size(), " entries but must have ", wanted,
               per_token ? ": one a token under reduction none" : ": the loss is one value");
  }
  if (per_token) {
    problem::check_finite_entries("upstream", upstream, problem);
  } else {
    core::check_finite("upstream", upstream[0]);
  }
}

Plan run_backward(Call& call, const Targets& targets, const CrossEntropyOptions& options, const TokenStats& stats,
                  std::span<const double> upstream) {
  loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  const problem::TokenProblem& problem = call.problem();
  check_upstream(options, problem, upstream);
  problem::check_entries("forward.stats.logp", stats.logp.size(), problem);
  if (options.z_loss > 0) problem::check_entries("forward.stats.lse", stats.lse.size(), problem);
  if (options.label_smoothing > 0) problem::check_entries("forward.stats.prior", stats.prior.size(), problem);
  loss.set_upstream(upstream);
  stats::Columns columns;
  columns.grads = stats::empty_grads(problem, loss);
  loss.evaluate(problem.active(), stats, columns.grads);
  return call.run_gradients(stats, columns.grads);
}

// Gives every token the one upstream gradient.
Plan run_backward(Call& call, const Targets& targets, const CrossEntropyOptions& options, const TokenStats& stats,
                  double upstream) {
  const bool per_token = options.reduction == Reduction::kNone;
  const core::Array<double> of_each(per_token ? static_cast<size_t>(call.problem().tokens) : 1, upstream);
  return run_backward(call, targets, options, stats, of_each);
}

Plan plan(Call call, const Targets& targets, const CrossEntropyOptions& options) {
  const loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  return call.plan(&loss);
}

}  // namespace

CrossEntropyResult cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const CrossEntropyOptions& options,
                                 const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), targets, options);
}
CrossEntropyResult cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                                 const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return run(Call(context, logits, dlogits), targets, options);
}

CrossEntropyForward cross_entropy_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const Targets& targets, const CrossEntropyOptions& options) {
  CrossEntropyForward out;
  out.result = run(Call(context, hidden, head), targets, options, &out.stats);
  return out;
}
CrossEntropyForward cross_entropy_forward(const Context& context, const Logits& logits, const Targets& targets,
                                          const CrossEntropyOptions& options) {
  CrossEntropyForward out;
  out.result = run(Call(context, logits), targets, options, &out.stats);
  return out;
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, std::span<const double> upstream,
                            const Gradients& gradients) {
  Call call(context, hidden, head, gradients);
  return run_backward(call, targets, options, forward.stats, upstream);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward,
                            std::span<const double> upstream, const LogitsGradient& dlogits) {
  Call call(context, logits, dlogits);
  return run_backward(call, targets, options, forward.stats, upstream);
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, double upstream, const Gradients& gradients) {
  Call call(context, hidden, head, gradients);
  return run_backward(call, targets, options, forward.stats, upstream);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward, double upstream,
                            const LogitsGradient& dlogits) {
  Call call(context, logits, dlogits);
  return run_backward(call, targets, options, forward.stats, upstream);
}

Plan plan_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                        const CrossEntropyOptions& options, const Gradients& gradients) {
  return plan(Call(context, hidden, head, gradients), targets, options);
}
Plan plan_cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                        const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return plan(Call(context, logits, dlogits), targets, options);
}

CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const Targets& targets, const CrossEntropyOptions& options,
                                       const Gradients& gradients) {
  ContextOptions dense = context.options();
  dense.plan = PlanKind::kDense;
  return cross_entropy(Context(dense), hidden, head, targets, options, gradients);
}

}  // namespace logitless
