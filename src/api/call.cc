// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <utility>

namespace logitless::api {
namespace {

const Gradients kNoGradients;
const LogitsGradient kNoLogitsGradient;

}  // namespace

Call::Call(const Context& context, const HiddenStates& hidden, const LmHead& head, const Gradients& outputs)
    : context_(context), source_(FromHidden{problem::make_problem(hidden, head), outputs}) {}
Call::Call(const Context& context, const HiddenStates& hidden, const LmHead& head)
    : Call(context, hidden, head, kNoGradients) {}
Call::Call(const Context& context, const Logits& logits, const LogitsGradient& outputs)
    : context_(context), source_(FromLogits{problem::make_problem(logits), outputs}) {}
Call::Call(const Context& context, const Logits& logits) : Call(context, logits, kNoLogitsGradient) {}

const problem::TokenProblem& Call::problem() const {
  return std::visit([](const auto& source) -> const problem::TokenProblem& { return source.problem; }, source_);
}

const std::vector<int64_t>& Call::sequence_offsets() const {
  return std::visit([](const auto& source) -> const std::vector<int64_t>& { return source.problem.sequence_offsets; },
                    source_);
}

std::vector<int64_t> Call::words(const Targets& targets, const TokenOptions& options) const {
  return problem::resolve_words(targets, options, sequence_offsets(), problem().vocab_size, problem().rows_name);
}

bool Call::wants_gradients() const {
  return std::visit([](const auto& source) { return problem::is_wanted(source.outputs); }, source_);
}

void Call::set_task(Task task) {
  std::visit(
      [&](auto& source) {
        problem::TokenProblem& problem = source.problem;
        problem.options = task.options;
        problem.request = task.request;
        problem.prior = task.prior;
        problem.targets = std::move(task.targets);
        problem::check_tokens(problem);
        problem::check_outputs(source.problem, source.outputs);
        std::vector<core::ByteRange> reads = std::move(task.reads);
        const std::vector<core::ByteRange> tensors = reads_of(source.problem, source.outputs);
        reads.insert(reads.end(), tensors.begin(), tensors.end());
        core::check_overlaps(writes_of(source.problem, source.outputs), reads);
      },
      source_);
}

stream::Ran Call::run(TokenLoss* loss) const {
  return std::visit([&](const auto& source) { return stream::run(context_, source.problem, source.outputs, loss); },
                    source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads) const {
  return std::visit(
      [&](const auto& source) { return stream::run_gradients(context_, source.problem, source.outputs, stats, grads); },
      source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads, double upstream) const {
  core::check_finite("upstream", upstream);
  TokenGrads scaled = grads;
  for (std::vector<double>* terms : {&scaled.logp, &scaled.lse, &scaled.entropy, &scaled.prior}) {
    for (double& term : *terms) term *= upstream;
  }
  return run_gradients(stats, scaled);
}

Plan Call::plan(const TokenLoss* loss) const {
  return std::visit(
      [&](const auto& source) { return stream::plan_run(context_, source.problem, source.outputs, loss); }, source_);
}

}  // namespace logitless::api
