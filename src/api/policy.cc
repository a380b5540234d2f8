// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <utility>

#include "api/call.h"
#include "logitless/logits.h"

namespace logitless {
namespace {

using api::Call;

// Gives the call its task.
loss::PolicyLoss make_loss(Call& call, const PolicyBatch& batch, const PolicyOptions& options) {
  const problem::TokenProblem& problem = call.problem();
  loss::PolicyLoss loss(batch, options, call.sequence_offsets(), problem.vocab_size, problem.rows_name);
  call.set_task({.options = options.token,
                 .request = loss.needs(),
                 .targets = problem::row_targets(loss.targets()),
                 .reads = loss::batch_ranges(batch)});
  return loss;
}

PolicyResult run(Call call, const PolicyBatch& batch, const PolicyOptions& options) {
  loss::PolicyLoss loss = make_loss(call, batch, options);
  const stream::Ran ran = call.run(&loss);
  return loss.result(ran.stats, ran.plan);
}

PolicyForward run_forward(Call call, const PolicyBatch& batch, const PolicyOptions& options) {
  loss::PolicyLoss loss = make_loss(call, batch, options);
  stream::Ran ran = call.run(&loss);
  return {loss.result(ran.stats, ran.plan), std::move(ran.stats), std::move(ran.grads)};
}

Plan run_backward(Call call, const PolicyBatch& batch, const PolicyOptions& options, const PolicyForward& forward,
                  double upstream) {
  make_loss(call, batch, options);
  return call.run_gradients(forward.stats, forward.grads, upstream);
}

Plan plan(Call call, const PolicyBatch& batch, const PolicyOptions& options) {
  const loss::PolicyLoss loss = make_loss(call, batch, options);
  return call.plan(&loss);
}

}  // namespace

PolicyResult policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                         const PolicyBatch& batch, const PolicyOptions& options, const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), batch, options);
}
PolicyResult policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                         const PolicyOptions& options, const LogitsGradient& dlogits) {
  return run(Call(context, logits, dlogits), batch, options);
}

PolicyForward policy_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                  const PolicyBatch& batch, const PolicyOptions& options) {
  return run_forward(Call(context, hidden, head), batch, options);
}
PolicyForward policy_loss_forward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                  const PolicyOptions& options) {
  return run_forward(Call(context, logits), batch, options);
}

Plan policy_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const PolicyBatch& batch, const PolicyOptions& options, const PolicyForward& forward,
                          double upstream, const Gradients& gradients) {
  return run_backward(Call(context, hidden, head, gradients), batch, options, forward, upstream);
}
Plan policy_loss_backward(const Context& context, const Logits& logits, const PolicyBatch& batch,
                          const PolicyOptions& options, const PolicyForward& forward, double upstream,
                          const LogitsGradient& dlogits) {
  return run_backward(Call(context, logits, dlogits), batch, options, forward, upstream);
}

Plan plan_policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const PolicyBatch& batch,
                      const PolicyOptions& options, const Gradients& gradients) {
  return plan(Call(context, hidden, head, gradients), batch, options);
}
Plan plan_policy_loss(const Context& context, const Logits& logits, const PolicyBatch& batch,
                      const PolicyOptions& options, const LogitsGradient& dlogits) {
  return plan(Call(context, logits, dlogits), batch, options);
}

}  // namespace logitless
