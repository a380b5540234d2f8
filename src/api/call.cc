// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <utility>

#include "core/check_fields.h"
#include "logitless/workspace.h"
#include "stats/columns.h"

namespace logitless::api {
namespace {

const Gradients kNoGradients;
const LogitsGradient kNoLogitsGradient;

core::Store* store_of(const Context& context) { return detail::store_of(context.options().workspace); }

}  // namespace

std::shared_ptr<Call::Shared> Call::share(const Context& context) {
  const Ranks& ranks = context.options().ranks;
  if (!ranks.any()) return nullptr;
  try {
    return core::make_shared<Shared>(Shared{core::make_shared<ranks::Meeting>(ranks), {}});
  } catch (...) {
    ranks::leave(ranks, std::current_exception());
    throw;
  }
}

Call::FromHidden Call::from_hidden(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                   const Gradients& outputs, Shared* shared) {
  problem::HiddenProblem problem = problem::make_problem(hidden, head, context.options().ranks.cuts_vocab());
  if (!shared) return {std::move(problem), outputs};
  const Ranks& ranks = context.options().ranks;
  problem.totals = ranks::Totals(&shared->meeting->data);
  if (ranks.data && ranks.sum_d_weight) problem.weight_ranks = &shared->meeting->data;
  if (!ranks.cuts_vocab()) return {std::move(problem), outputs};
  shared->cut = ranks::agree_on_cut(shared->meeting->vocab, ranks, problem::head_types(problem, outputs));
  problem.cut = &shared->cut;
  problem.vocab_size = shared->cut.vocab_size();
  problem.first_entry = shared->cut.first_entry();
  return {std::move(problem), outputs};
}

Call::Call(const Context& context, const HiddenStates& hidden, const LmHead& head, const Gradients& outputs)
    : scope_(store_of(context)),
      context_(context),
      shared_(share(context)),
      source_(ranks::together(meeting(), [&] { return from_hidden(context, hidden, head, outputs, shared_.get()); })) {}
Call::Call(const Context& context, const HiddenStates& hidden, const LmHead& head)
    : Call(context, hidden, head, kNoGradients) {}
Call::Call(const Call& whole, const HiddenStates& hidden, const LmHead& head)
    : scope_(store_of(whole.context_)),
      context_(whole.context_),
      shared_(whole.shared_ ? core::make_shared<Shared>(Shared{whole.shared_->meeting, {}}) : nullptr),
      source_(from_hidden(whole.context_, hidden, head, kNoGradients, shared_.get())) {}
Call::Call(const Context& context, const Logits& logits, const LogitsGradient& outputs)
    : scope_(store_of(context)), context_(context), shared_(share(context)), source_(ranks::together(meeting(), [&] {
        if (context.options().ranks.cuts_vocab()) {
          core::fail("ranks.vocab or ranks.slices is set: vocabulary entries of finished logits are not split");
        }
        FromLogits source{problem::make_problem(logits), outputs};
        if (shared_) source.problem.totals = ranks::Totals(&shared_->meeting->data);
        return source;
      })) {}
Call::Call(const Context& context, const Logits& logits) : Call(context, logits, kNoLogitsGradient) {}

const problem::TokenProblem& Call::problem() const {
  return std::visit([](const auto& source) -> const problem::TokenProblem& { return source.problem; }, source_);
}

const core::Array<int64_t>& Call::sequence_offsets() const {
  return std::visit([](const auto& source) -> const core::Array<int64_t>& { return source.problem.sequence_offsets; },
                    source_);
}

core::Array<int64_t> Call::target_ids(const Targets& targets, const TokenOptions& options) const {
  return problem::resolve_targets(targets, options, sequence_offsets(), problem().vocab_size, problem().rows_name);
}

bool Call::wants_gradients() const {
  return std::visit([](const auto& source) { return problem::is_wanted(source.problem, source.outputs); }, source_);
}

void Call::set_task(Task task) {
  std::visit(
      [&](auto& source) {
        problem::TokenProblem& problem = source.problem;
        problem.options = task.options;
        problem.request = task.request;
        problem.cross = task.cross;
        problem.targets = std::move(task.targets);
        problem::check_tokens(problem);
        problem::check_outputs(source.problem, source.outputs);
        core::Array<core::ByteRange> reads = std::move(task.reads);
        const core::Array<core::ByteRange> tensors = reads_of(source.problem, source.outputs);
        reads.insert(reads.end(), tensors.begin(), tensors.end());
        core::check_overlaps(writes_of(source.problem, source.outputs), reads);
      },
      source_);
}

stream::Ran Call::run(TokenLoss* loss, stats::Returned returned) const {
  return std::visit(
      [&](const auto& source) { return stream::run(context_, source.problem, source.outputs, loss, returned); },
      source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads) const {
  return std::visit(
      [&](const auto& source) { return stream::run_gradients(context_, source.problem, source.outputs, stats, grads); },
      source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads, double upstream) const {
  core::check_field("upstream", kFinite, upstream);
  stats::Columns columns;
  TokenGrads& scaled = columns.grads;
  for (const auto& [name, column] : stats::kGradColumns) {
    scaled.*column = columns.take_grads((grads.*column).size());
    std::transform((grads.*column).begin(), (grads.*column).end(), (scaled.*column).begin(),
                   [upstream](double value) { return value * upstream; });
  }
  return run_gradients(stats, scaled);
}

Plan Call::plan(const TokenLoss* loss) const {
  return std::visit(
      [&](const auto& source) { return stream::plan_run(context_, source.problem, source.outputs, loss); }, source_);
}

}  // namespace logitless::api
