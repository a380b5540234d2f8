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
  call.set_task({.options = loss.token_options(),
                 .request = loss.needs(),
                 .targets = problem::row_targets(loss.targets()),
                 .reads = loss::batch_ranges(batch)});
  return loss;
}

PolicyResult run(Call call, const PolicyBatch& batch, const PolicyOptions& options) {
  loss::PolicyLoss loss = make_loss(call, batch, options);
  Plan plan;
  const TokenStats stats = call.run(&loss, &plan);
  return loss.result(stats, plan);
}

}  // namespace

PolicyResult policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                         const PolicyBatch& batch, const PolicyOptions& options, const Gradients& gradients) {
  return run(Call(context, hidden, head, gradients), batch, options);
}

Plan plan_policy_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const PolicyBatch& batch,
                      const PolicyOptions& options, const Gradients& gradients) {
  Call call(context, hidden, head, gradients);
  const loss::PolicyLoss loss = make_loss(call, batch, options);
  return call.plan(&loss);
}

PolicyFromLogits policy_loss_from_logits(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                         const PolicyOptions& options, const LogitsGradient& dlogits) {
  PolicyResult result = run(Call(context, logits, dlogits), batch, options);
  return {result.loss, std::move(result.per_token_loss), std::move(result.per_token_logps), result.metrics};
}

}  // namespace logitless
