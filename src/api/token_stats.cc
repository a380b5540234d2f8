// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/token_stats.h"

#include "api/call.h"
#include "logitless/logits.h"

namespace logitless {
namespace {

using api::Call;

void set_task(Call& call, const Targets& targets, const TokenOptions& options, StatsRequest request) {
  call.set_task({.options = options,
                 .request = request,
                 .targets = problem::row_targets(call.words(targets, options)),
                 .prior = {options.prior},
                 .reads = {core::range_of("targets", targets)}});
}

TokenStats statistics(Call call, const Targets& targets, const TokenOptions& options, StatsRequest request,
                      Plan* plan) {
  set_task(call, targets, options, request);
  return call.run(nullptr, plan);
}

void set_task(Call& call, const Targets& targets, const TokenOptions& options, const TokenLoss& loss) {
  StatsRequest request = loss.needs();
  request.entropy |= loss.gradients().entropy;  // the entropy's gradient is a function of the entropy
  set_task(call, targets, options, request);
}

TokenStats run_loss(Call call, const Targets& targets, const TokenOptions& options, TokenLoss& loss, Plan* plan) {
  set_task(call, targets, options, loss);
  return call.run(&loss, plan);
}

// A loss whose gradient with respect to the entropy the caller has.
class GivenEntropyGradient final : public TokenLoss {
 public:
  explicit GivenEntropyGradient(std::span<const double> upstream) : upstream_(upstream) {}

  StatsRequest needs() const override { return {.entropy = true}; }
  GradientTerms gradients() const override { return {.entropy = true}; }
  void evaluate(std::span<const int64_t> rows, const TokenStats&, TokenGrads& grads) override {
    for (const int64_t row : rows) grads.entropy[static_cast<size_t>(row)] = upstream_[static_cast<size_t>(row)];
  }

 private:
  std::span<const double> upstream_;
};

}  // namespace

TokenStats compute_token_stats(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, StatsRequest request, Plan* plan) {
  return statistics(Call(context, hidden, head), targets, options, request, plan);
}

TokenStats token_stats_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                   const TokenOptions& options, StatsRequest request) {
  return statistics(Call(context, logits), targets, options, request, nullptr);
}

void backpropagate_token_grads(const Context& context, const HiddenStates& hidden, const LmHead& head,
                               const Targets& targets, const TokenOptions& options, const TokenStats& stats,
                               const TokenGrads& grads, const Gradients& outputs, Plan* plan) {
  Call call(context, hidden, head, outputs);
  set_task(call, targets, options, StatsRequest{});
  const Plan ran = call.run_gradients(stats, grads);
  if (plan) *plan = ran;
}

TokenStats run_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                          const Targets& targets, const TokenOptions& options, TokenLoss& loss,
                          const Gradients& outputs, Plan* plan) {
  return run_loss(Call(context, hidden, head, outputs), targets, options, loss, plan);
}

Plan plan_token_loss(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                     const TokenOptions& options, const TokenLoss& loss, const Gradients& outputs) {
  Call call(context, hidden, head, outputs);
  set_task(call, targets, options, loss);
  return call.plan(&loss);
}

TokenStats run_token_loss_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                      const TokenOptions& options, TokenLoss& loss, const LogitsGradient& dlogits) {
  return run_loss(Call(context, logits, dlogits), targets, options, loss, nullptr);
}

std::vector<double> entropy_from_logits(const Context& context, const Logits& logits, const EntropyOptions& options,
                                        std::span<const double> upstream, const LogitsGradient& dlogits) {
  Call call(context, logits, dlogits);
  api::Task task;
  task.options.temperature = options.temperature;
  task.options.temperatures = options.temperatures;
  task.options.round_logits_to = options.round_logits_to;
  task.request.entropy = true;
  task.targets = problem::all_rows(logits.tokens());
  task.reads = {core::range_of("upstream", upstream.data(), upstream.size_bytes())};
  call.set_task(std::move(task));
  if (!call.wants_gradients()) {
    if (!upstream.empty()) core::fail("upstream has ", upstream.size(), " entries but dlogits.data is null");
    return call.run(nullptr).entropy;
  }
  problem::check_entries("upstream", upstream.size(), call.problem());
  problem::check_finite_entries("upstream", upstream, call.problem());
  GivenEntropyGradient loss(upstream);
  return call.run(&loss).entropy;
}

}  // namespace logitless
