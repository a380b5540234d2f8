// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/logits.h"

#include "core/checks.h"
#include "engine/run.h"
#include "logits/problem.h"
#include "logits/run.h"
#include "loss/cross_entropy.h"
#include "loss/policy.h"

namespace logitless {
namespace {

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

TokenStats token_stats_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                   const TokenOptions& options, StatsRequest request) {
  return logits::run(context, logits::make_problem(logits, targets, options, request, {}), nullptr);
}

TokenStats run_token_loss_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                      const TokenOptions& options, TokenLoss& loss, const LogitsGradient& dlogits) {
  StatsRequest request = loss.needs();
  request.entropy |= loss.gradients().entropy;  // the entropy's gradient is a function of the entropy
  return logits::run(context, logits::make_problem(logits, targets, options, request, dlogits), &loss);
}

CrossEntropyFromLogits cross_entropy_from_logits(const Context& context, const Logits& logits, const Targets& targets,
                                                 const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  loss::check_options(options);
  const logits::Problem problem = logits::make_problem(logits, targets, loss::token_options(options),
                                                       loss::stats_request(options), dlogits, "class_weights");
  loss::CrossEntropyLoss loss(options, problem);
  TokenStats stats = logits::run(context, problem, &loss);
  const CrossEntropyResult result = loss.result(stats, {});
  CrossEntropyFromLogits out;
  out.loss = result.loss;
  out.metrics = result.metrics;
  out.per_token_loss = loss.unreduced(stats);
  out.per_token_logps = std::move(stats.logp);
  return out;
}

PolicyFromLogits policy_loss_from_logits(const Context& context, const Logits& logits, const PolicyBatch& batch,
                                         const PolicyOptions& options, const LogitsGradient& dlogits) {
  loss::check_policy_options(options, batch);
  loss::PolicyLoss loss(batch, options, logits::checked_sequence_offsets(logits), logits.vocab, "logits");
  const logits::Problem problem =
      logits::make_problem(logits, Targets(loss.targets()), loss.token_options(), loss.needs(), dlogits);
  const core::ByteRange writes[] = {logits::output_range(dlogits)};
  core::check_overlaps(writes, loss::batch_ranges(batch));
  const TokenStats stats = logits::run(context, problem, &loss);
  PolicyResult result = loss.result(stats, {});
  return {result.loss, std::move(result.per_token_loss), std::move(result.per_token_logps), result.metrics};
}

std::vector<double> entropy_from_logits(const Context& context, const Logits& logits, const EntropyOptions& options,
                                        std::span<const double> upstream, const LogitsGradient& dlogits) {
  TokenOptions token_options;
  token_options.temperature = options.temperature;
  token_options.temperatures = options.temperatures;
  token_options.round_logits_to = options.round_logits_to;
  const logits::Problem problem = logits::make_problem(logits, token_options, {.entropy = true}, upstream, dlogits);
  if (!dlogits.data) {
    if (!upstream.empty()) core::fail("upstream has ", upstream.size(), " entries but dlogits.data is null");
    return logits::run(context, problem, nullptr).entropy;
  }
  engine::check_entries("upstream", upstream, problem);
  engine::check_finite_entries("upstream", upstream, problem);
  GivenEntropyGradient loss(upstream);
  return logits::run(context, problem, &loss).entropy;
}

}  // namespace logitless
