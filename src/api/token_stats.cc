// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/token_stats.h"

#include <utility>

#include "api/call.h"
#include "fold/call_partials.h"
#include "logitless/logits.h"
#include "logitless/slices.h"
#include "stats/columns.h"

namespace logitless {
namespace {

using api::Call;

void set_task(Call& call, const Targets& targets, const TokenOptions& options, const StatsRequest& request) {
  call.set_task({.options = options,
                 .request = request,
                 .picks = problem::target_picks(call.target_ids(targets, options)),
                 .cross = {request.cross_weights}},
                {core::range_of("targets", targets)});
}

void set_task(Call& call, const Targets& targets, const TokenOptions& options, const TokenLoss& loss) {
  if (loss.gradients().divergence) {
    core::fail("the loss has a gradient of the divergence, but the call has no teacher");
  }
  StatsRequest request = loss.needs();
  // Their gradients are functions of the statistics themselves.
  request.entropy |= loss.gradients().entropy;
  request.outside |= loss.gradients().outside;
  set_task(call, targets, options, request);
}

// States the caller's gradients, of which those of the wrong size are refused later.
void state_grads(ranks::Statement& statement, const problem::TokenProblem& problem, const TokenGrads& grads) {
  for (const auto& [name, column, of_picks] : stats::kGradColumns) {
    const std::vector<double>& values = grads.*column;
    if (static_cast<int64_t>(values.size()) != problem.tokens) continue;
    api::state_vector(statement, name, problem, values);
  }
}

TokenStats statistics(Call whole, const Targets& targets, const TokenOptions& options, const StatsRequest& request,
                      Plan* plan) {
  return whole.complete([&](Call& call) {
    call.state("token_stats", options, request);
    set_task(call, targets, options, request);
    stream::Ran ran = call.run(nullptr, api::kStatistics);
    if (plan) *plan = ran.plan;
    return std::move(ran.stats);
  });
}

void backpropagate(Call whole, const Targets& targets, const TokenOptions& options, const StatsRequest& request,
                   const TokenStats& stats, const TokenGrads& grads, Plan* plan) {
  const Plan ran = whole.complete([&](Call& call) {
    call.state("backpropagate_token_grads", options, request);
    set_task(call, targets, options, request);
    call.state_tokens([&](ranks::Statement& statement) { state_grads(statement, call.problem(), grads); });
    return call.run_gradients(stats, grads);
  });
  if (plan) *plan = ran;
}

TokenStats run_loss(Call whole, const Targets& targets, const TokenOptions& options, TokenLoss& loss, Plan* plan) {
  return whole.complete([&](Call& call) {
    call.state("run_token_loss", options);
    set_task(call, targets, options, loss);
    stream::Ran ran = call.run(&loss, {.stats = true});
    if (plan) *plan = ran.plan;
    return std::move(ran.stats);
  });
}

Plan plan_statistics(Call whole, const Targets& targets, const TokenOptions& options, const StatsRequest& request) {
  return whole.complete([&](Call& call) {
    call.state("plan_token_stats", options, request);
    set_task(call, targets, options, request);
    return call.plan(nullptr, api::kStatistics);
  });
}

Plan plan_loss(Call whole, const Targets& targets, const TokenOptions& options, const TokenLoss& loss) {
  return whole.complete([&](Call& call) {
    call.state("plan_token_loss", options);
    set_task(call, targets, options, loss);
    return call.plan(&loss);
  });
}

// A loss whose gradient with respect to the entropy is given by the caller.
class GivenEntropyGradient final : public TokenLoss {
 public:
  explicit GivenEntropyGradient(std::span<const double> upstream) : upstream_(upstream) {}

  StatsRequest needs() const override { return {.entropy = true}; }
  GradsFilled gradients() const override { return {.entropy = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.entropy[static_cast<size_t>(row)] = upstream_[static_cast<size_t>(row)];
  }

 private:
  std::span<const double> upstream_;
};

void check_entropy_options(const TokenOptions& options) {
  if (options.shift) core::fail("shift = ", options.shift, ": an entropy has no targets to shift");
  if (options.ignore_index != TokenOptions().ignore_index) {
    core::fail("ignore_index = ", options.ignore_index, " has no meaning for an entropy: no row is left out");
  }
}

}  // namespace

TokenStats compute_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, const StatsRequest& request,
                               Plan* plan) {
  return statistics(Call(context, hidden, head), targets, options, request, plan);
}
TokenStats compute_token_stats(const Context& context, const Logits& logits, const Targets& targets,
                               const TokenOptions& options, const StatsRequest& request, Plan* plan) {
  return statistics(Call(context, logits), targets, options, request, plan);
}

void backpropagate_token_grads(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, const StatsRequest& request,
                               const TokenStats& stats, const TokenGrads& grads, const Gradients& outputs, Plan* plan) {
  backpropagate(Call(context, hidden, head, outputs), targets, options, request, stats, grads, plan);
}
void backpropagate_token_grads(const Context& context, const Logits& logits, const Targets& targets,
                               const TokenOptions& options, const StatsRequest& request, const TokenStats& stats,
                               const TokenGrads& grads, const LogitsGradient& dlogits, Plan* plan) {
  backpropagate(Call(context, logits, dlogits), targets, options, request, stats, grads, plan);
}

TokenStats run_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const TokenOptions& options, TokenLoss& loss,
                          const Gradients& outputs, Plan* plan) {
  return run_loss(Call(context, hidden, head, outputs), targets, options, loss, plan);
}
TokenStats run_token_loss(const Context& context, const Logits& logits, const Targets& targets,
                          const TokenOptions& options, TokenLoss& loss, const LogitsGradient& dlogits, Plan* plan) {
  return run_loss(Call(context, logits, dlogits), targets, options, loss, plan);
}

Plan plan_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                      const TokenOptions& options, const StatsRequest& request) {
  return plan_statistics(Call(context, hidden, head), targets, options, request);
}
Plan plan_token_stats(const Context& context, const Logits& logits, const Targets& targets, const TokenOptions& options,
                      const StatsRequest& request) {
  return plan_statistics(Call(context, logits), targets, options, request);
}

Plan plan_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options, const TokenLoss& loss, const Gradients& outputs) {
  return plan_loss(Call(context, hidden, head, outputs), targets, options, loss);
}
Plan plan_token_loss(const Context& context, const Logits& logits, const Targets& targets, const TokenOptions& options,
                     const TokenLoss& loss, const LogitsGradient& dlogits) {
  return plan_loss(Call(context, logits, dlogits), targets, options, loss);
}

size_t slice_bytes_per_token(DType hidden, const StatsRequest& request) {
  const problem::TokenProblem problem = problem::resolve(
      {.tokens = 1, .dtype = hidden}, {.options = {}, .request = request, .picks = problem::target_picks({0})});
  return fold::CallPartials(problem).wire_bytes(fold::Walk::kFirst, 0);
}

std::vector<std::byte> token_stats_slice(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                         const Targets& targets, const TokenOptions& options,
                                         const StatsRequest& request) {
  Call whole(context, hidden, head);
  return whole.complete([&](Call& call) {
    set_task(call, targets, options, request);
    return call.fold_slice();
  });
}

std::vector<double> entropy_from_logits(const Context& context, const Logits& logits, const TokenOptions& options,
                                        std::span<const double> upstream, const LogitsGradient& dlogits) {
  Call whole(context, logits, dlogits);
  return whole.complete([&](Call& call) {
    call.state("entropy_from_logits", options);
    check_entropy_options(options);
    call.set_task({.options = options, .request = {.entropy = true}, .picks = problem::all_rows(logits.tokens())},
                  {core::range_of("upstream", upstream.data(), upstream.size_bytes())});
    if (!dlogits.data) {
      if (!upstream.empty()) core::fail("upstream has ", upstream.size(), " entries but dlogits.data is null");
      const stream::Ran ran = call.run(nullptr);
      return ran.stats.entropy;
    }
    problem::check_entries("upstream", upstream.size(), call.problem());
    problem::check_finite_entries("upstream", upstream, call.problem());
    GivenEntropyGradient loss(upstream);
    const stream::Ran ran = call.run(&loss);
    return ran.stats.entropy;
  });
}

}  // namespace logitless
