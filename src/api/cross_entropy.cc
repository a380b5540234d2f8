// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/cross_entropy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "api/call.h"
#include "logitless/dense.h"
#include "logitless/logits.h"
#include "loss/cross_entropy.h"
#include "stats/statistics.h"

namespace logitless {
namespace {

using api::Call;

// Gives the call its task. The loss keeps references to both.
loss::CrossEntropyLoss make_loss(Call& call, const Targets& targets, const CrossEntropyOptions& options) {
  loss::check_options(options);
  call.set_task({.options = options.token,
                 .request = loss::stats_request(options),
                 .targets = problem::row_targets(call.words(targets, options.token)),
                 .prior = loss::prior(options),
                 .reads = {core::range_of("targets", targets)}});
  return loss::CrossEntropyLoss(options, call.problem());
}

CrossEntropyForward run(Call call, const Targets& targets, const CrossEntropyOptions& options) {
  loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  CrossEntropyForward out;
  stream::Ran ran = call.run(&loss);
  out.result = loss.result(ran.stats, ran.plan);
  out.stats = std::move(ran.stats);
  return out;
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

Plan run_backward(Call call, const Targets& targets, const CrossEntropyOptions& options, const TokenStats& stats,
                  std::span<const double> upstream) {
  loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  const problem::TokenProblem& problem = call.problem();
  check_upstream(options, problem, upstream);
  problem::check_entries("forward.stats.logp", stats.logp.size(), problem);
  if (options.z_loss > 0) problem::check_entries("forward.stats.lse", stats.lse.size(), problem);
  if (options.label_smoothing > 0) problem::check_entries("forward.stats.prior", stats.prior.size(), problem);
  loss.set_upstream(upstream);
  TokenGrads grads = stats::empty_grads(problem, loss);
  loss.evaluate(problem.active(), stats, grads);
  return call.run_gradients(stats, grads);
}

// Upstream gradients of every token, where there is one for all.
std::vector<double> upstream_of_each(const CrossEntropyOptions& options, double upstream, int64_t tokens) {
  const bool per_token = options.reduction == Reduction::kNone;
  return std::vector<double>(per_token ? static_cast<size_t>(std::max<int64_t>(0, tokens)) : 1, upstream);
}

Plan plan(Call call, const Targets& targets, const CrossEntropyOptions& options) {
  const loss::CrossEntropyLoss loss = make_loss(call, targets, options);
  return call.plan(&loss);
}

}  // namespace

CrossEntropyResult cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const CrossEntropyOptions& options,
                                 const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), targets, options).result;
}
CrossEntropyResult cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                                 const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return run(Call(context, logits, dlogits), targets, options).result;
}

CrossEntropyForward cross_entropy_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const Targets& targets, const CrossEntropyOptions& options) {
  return run(Call(context, hidden, head), targets, options);
}
CrossEntropyForward cross_entropy_forward(const Context& context, const Logits& logits, const Targets& targets,
                                          const CrossEntropyOptions& options) {
  return run(Call(context, logits), targets, options);
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, std::span<const double> upstream,
                            const Gradients& gradients) {
  return run_backward(Call(context, hidden, head, gradients), targets, options, forward.stats, upstream);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward,
                            std::span<const double> upstream, const LogitsGradient& dlogits) {
  return run_backward(Call(context, logits, dlogits), targets, options, forward.stats, upstream);
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, double upstream, const Gradients& gradients) {
  return cross_entropy_backward(context, hidden, head, targets, options, forward,
                                upstream_of_each(options, upstream, hidden.tokens()), gradients);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward, double upstream,
                            const LogitsGradient& dlogits) {
  return cross_entropy_backward(context, logits, targets, options, forward,
                                upstream_of_each(options, upstream, logits.tokens()), dlogits);
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
