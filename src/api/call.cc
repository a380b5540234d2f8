// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <utility>

#include "core/check_fields.h"
#include "logitless/workspace.h"
#include "stats/columns.h"
#include "stats/statistics.h"

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
    auto shared = core::make_shared<Shared>(core::make_shared<ranks::Meeting>(ranks));
    shared->meeting->state([&](ranks::Statement& statement) {
      statement.say("gradient_precision", context.options().gradient_precision);
    });
    if (ranks.vocab) shared->meeting->vocab.statement().say("own_d_hidden", ranks.own_d_hidden);
    if (ranks.data) shared->meeting->data.statement().say("sum_d_weight", ranks.sum_d_weight);
    return shared;
  } catch (...) {
    ranks::leave(ranks, std::current_exception());
    throw;
  }
}

std::shared_ptr<Call::Shared> Call::share(const Call& whole) {
  if (!whole.shared_) return nullptr;
  auto shared = core::make_shared<Shared>(whole.shared_->meeting);
  shared->of_part.emplace(*shared->meeting);
  return shared;
}

Call::FromHidden Call::from_hidden(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                   const Gradients& outputs, Shared* shared) {
  problem::HiddenProblem problem = problem::make_problem(hidden, head, context.options().ranks.cuts_vocab());
  if (!shared) return {std::move(problem), outputs};
  const Ranks& ranks = context.options().ranks;
  problem.totals = ranks::Totals(&shared->meeting->data);
  if (ranks.data && ranks.sum_d_weight) problem.weight_ranks = &shared->meeting->data;
  if (!ranks.cuts_vocab()) return {std::move(problem), outputs};
  const ranks::HeadTypes types = problem::head_types(problem, outputs);
  problem.cut = &shared->cut;
  if (ranks.slice) {
    if (ranks.vocab || ranks.data || !ranks.slices.empty()) {
      core::fail("ranks.slice is set beside other ranks or slices: it meets nobody");
    }
    shared->cut = ranks::cut_of_slice(shared->meeting->vocab, *ranks.slice, types);
    problem.vocab_size = ranks.slice->vocab_size;
    problem.first_entry = ranks.slice->first;
    return {std::move(problem), outputs};
  }
  shared->cut = ranks::agree_on_cut(shared->meeting->vocab, ranks, types);
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
Call::Call(const Call& whole, const char* name, const HiddenStates& hidden, const LmHead& head)
    : scope_(store_of(whole.context_)),
      context_(whole.context_),
      part_(name),
      shared_(share(whole)),
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
        if (const auto& slice = context_.options().ranks.slice) {
          reads.push_back(core::range_of("ranks.slice.gathered", slice->gathered.data(), slice->gathered.size()));
        }
        const core::Array<core::ByteRange> tensors = reads_of(source.problem, source.outputs);
        reads.insert(reads.end(), tensors.begin(), tensors.end());
        core::check_overlaps(writes_of(source.problem, source.outputs), reads);
      },
      source_);
  check_slice();
  state_problem();
}

void Call::check_slice() const {
  const auto& slice = context_.options().ranks.slice;
  if (!slice) return;
  const problem::TokenProblem& problem = this->problem();
  if (problem.request.rank) core::fail("rank is wanted: it takes a second walk, and ranks.slice meets the others once");
  const size_t bytes = slice_bytes(), given = slice->gathered.size();
  if (given > 0 && (bytes == 0 || given % bytes != 0)) {
    core::fail("ranks.slice.gathered has ", given, " bytes, which is no multiple of the ", bytes, " of a slice");
  }
}

size_t Call::slice_bytes() const {
  const stats::CallPartials partials(problem());
  size_t bytes = 0;
  for (int64_t row = 0; row < problem().tokens; ++row) bytes += partials.wire_bytes(stats::Walk::kFirst, row);
  return bytes;
}

std::vector<std::byte> Call::fold_slice() const {
  const Ranks& ranks = context_.options().ranks;
  if (!ranks.slice) core::fail("ranks.slice is not set");
  if (!ranks.slice->gathered.empty()) core::fail("ranks.slice.gathered is given: a slice has nothing left to say");
  std::vector<std::byte> out(slice_bytes());
  shared_->cut.left = out.data();
  run(nullptr);
  return out;
}

void Call::state_problem() const {
  if (!shared_) return;
  ranks::Meeting& meeting = *shared_->meeting;
  meeting.state([&](ranks::Statement& statement) {
    const StatsRequest& request = problem().request;
    statement.say("the call's statistics", std::string(request.entropy ? "entropy " : "") +
                                               (request.cross ? "cross " : "") + (request.argmax ? "argmax " : "") +
                                               (request.rank ? "rank " : "") + "lse");
  });
  if (const auto* from = std::get_if<FromHidden>(&source_)) {
    if (meeting.vocab.is_shared()) api::state_tokens(meeting.vocab.statement(), from->problem, part_);
    if (meeting.data.is_shared()) api::state_head(meeting.data.statement(), from->problem, part_);
  } else if (meeting.data.is_shared()) {
    api::state_logits(meeting.data.statement(), std::get<FromLogits>(source_).problem);
  }
}

// Those of the vocabulary meet when they plan, those of a batch may have nothing to say to each other before
// the call ends.
void Call::meet_data() const {
  if (shared_) shared_->meeting->data.agree();
}

stream::Ran Call::run(TokenLoss* loss, stats::Returned returned) const {
  meet_data();
  if (context_.options().ranks.slice && !shared_->cut.left && shared_->cut.gathered.empty() && problem().tokens > 0) {
    core::fail("ranks.slice.gathered is empty: a call needs the statistics of all slices");
  }
  return std::visit(
      [&](const auto& source) { return stream::run(context_, source.problem, source.outputs, loss, returned); },
      source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads) const {
  meet_data();
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
  meet_data();
  return std::visit(
      [&](const auto& source) { return stream::plan_run(context_, source.problem, source.outputs, loss); }, source_);
}

}  // namespace logitless::api
