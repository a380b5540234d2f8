// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <utility>

#include "core/check_fields.h"
#include "fold/call_partials.h"
#include "logitless/workspace.h"
#include "ranks/batch_sums.h"
#include "stats/columns.h"

namespace logitless::api {
namespace {

core::Store* store_of(const Context& context) { return detail::store_of(context.options().workspace); }

// Creates the meeting of the ranks that share a call, and adds the context's options to its digests.
std::shared_ptr<ranks::Meeting> make_meeting(const Context& context) {
  const Ranks& ranks = context.options().ranks;
  if (!ranks.any()) return nullptr;
  try {
    auto meeting = core::make_shared<ranks::Meeting>(ranks);
    meeting->digest(
        [&](ranks::Digests& digests) { digests.add("gradient_precision", context.options().gradient_precision); });
    if (ranks.vocab) meeting->vocab.digests().add("own_d_hidden", ranks.own_d_hidden);
    if (ranks.data) meeting->data.digests().add("sum_d_weight", ranks.sum_d_weight);
    return meeting;
  } catch (...) {
    ranks::report_failure(ranks, std::current_exception());
    throw;
  }
}

// Returns what ranks must agree on. Ranks of a batch should have different seeds.
std::string draws_of(const StatsRequest& request) {
  if (request.draws == 0) return {};
  return "draws " + std::to_string(request.draws) + " of top " + std::to_string(request.draw_top_k) + " " +
         std::to_string(request.draw_top_p) + " ";
}

// Throws InvalidInput if gradients are requested that finished logits do not have.
void check_of_finished(const Gradients& gradients) {
  for (const auto& [name, given] : {std::pair<const char*, bool>("d_hidden", gradients.d_hidden.given()),
                                    {"d_weight", gradients.d_weight.given()},
                                    {"d_bias", gradients.d_bias.given()},
                                    {"d_lora_a", gradients.d_lora_a.given()},
                                    {"d_lora_b", gradients.d_lora_b.given()},
                                    {"d_lora_states", gradients.d_lora_states.given()}}) {
    if (given) core::fail(name, " is set, but finished logits have no hidden states and no head");
  }
  if (gradients.weight_sink) core::fail("weight_sink is set, but finished logits have no head");
  if (gradients.backward.mode != BackwardMode::kExact) {
    core::fail("backward.mode = ", name_of(gradients.backward.mode),
               ": finished logits have no head, so there are no products to save");
  }
}

// Throws InvalidInput if finished logits are given together with hidden states or a head.
void check_one_source(const Logits& logits) {
  if (!logits.is_given()) return;
  if (logits.hidden.given() || logits.head.given() || logits.head.softcap != 0) {
    core::fail("logits are given together with hidden states or a head: give only one of the two");
  }
  if (logits.finished.axes == 3 && !logits.offsets.empty()) {
    core::fail("offsets is given, but logits is [B, T, V]: packed sequences are rows of [N, V]");
  }
}

TeacherMatrices matrices_of(const Teacher& teacher) {
  const Logits& logits = teacher.logits;
  TeacherMatrices out;
  out.round_logits_to = teacher.round_logits_to;
  try {
    check_one_source(logits);
    if (logits.is_given() && !logits.offsets.empty())
      core::fail("offsets is given with finished logits, whose sequences are not read");
    out.hidden = core::hidden_of(logits);
    out.head = core::head_of(logits.head);
  } catch (const InvalidInput& error) {
    core::fail("teacher: ", error.what());
  }
  if (logits.is_given()) out.logits = core::logits_of("teacher.logits", logits.finished);
  return out;
}

}  // namespace

Call::FromHidden Call::from_hidden(const Logits& logits, const Teacher* teacher, const Gradients& gradients) {
  const Ranks& ranks = context_.options().ranks;
  const HiddenStates hidden = core::hidden_of(logits);
  const HeadMatrices head = core::head_of(logits.head);
  FromHidden source{problem::check_tensors(hidden, head, ranks.cuts_vocab()), outputs_};
  core::set_gradients(gradients, head.layout, outputs_);
  if (gradients.d_logits.given())
    core::fail("d_logits is set, but the logits are computed from hidden states and a head");
  std::optional<TeacherMatrices> teacher_matrices;
  if (teacher)
    problem::add_teacher(teacher_matrices.emplace(matrices_of(*teacher)), ranks.cuts_vocab(), source.tensors);
  if (!meeting_) return source;
  shared_ = ranks::share(
      *meeting_, ranks, {head, teacher_matrices && !teacher_matrices->has_logits() ? &teacher_matrices->head : nullptr},
      outputs_);
  if (!shared_.cut) return source;
  source.tensors.shape.vocab_size = shared_.cut->vocab_size;
  source.tensors.shape.first_entry = shared_.cut->first_entry;
  return source;
}

Call::FromLogits Call::from_logits(const Logits& logits, const Teacher* teacher, const Gradients& gradients) {
  check_one_source(logits);
  check_of_finished(gradients);
  if (context_.options().ranks.cuts_vocab()) {
    core::fail("ranks.vocab or ranks.slices is set: the vocabulary of finished logits cannot be cut");
  }
  core::set_gradients(gradients, HeadLayout::kVocabHidden, outputs_);
  FromLogits source{problem::check_tensors(core::logits_of("logits", logits.finished), logits.offsets),
                    outputs_.d_logits};
  if (teacher) problem::add_teacher(matrices_of(*teacher), source.tensors);
  if (meeting_) shared_ = ranks::share(*meeting_);
  return source;
}

std::variant<Call::FromHidden, Call::FromLogits> Call::source_of(const Logits& logits, const Teacher* teacher,
                                                                 const Gradients& gradients) {
  if (logits.is_given()) return from_logits(logits, teacher, gradients);
  return from_hidden(logits, teacher, gradients);
}

Call::Call(const Context& context, const Logits& logits, const Teacher* teacher, const Gradients& gradients)
    : scope_(store_of(context)),
      context_(context),
      meeting_(make_meeting(context)),
      source_(ranks::together(meeting_.get(), [&] { return source_of(logits, teacher, gradients); })) {}
Call::Call(const Call& whole, const char* name, const Logits& logits)
    : scope_(core::current_store()),
      context_(whole.context_),
      part_(name),
      meeting_(whole.meeting_),
      source_(from_hidden(logits, nullptr, kNoGradients)) {
  if (meeting_) digests_.emplace(*meeting_);
}

const problem::Shape& Call::shape() const {
  return std::visit([](const auto& source) -> const problem::Shape& { return source.tensors.shape; }, source_);
}

const problem::TokenProblem& Call::problem() const {
  return std::visit([](const auto& source) -> const problem::TokenProblem& { return source.problem.value(); }, source_);
}

const core::Array<int64_t>& Call::sequence_offsets() const {
  return std::visit([](const auto& source) -> const core::Array<int64_t>& { return source.tensors.sequence_offsets; },
                    source_);
}

core::Array<int64_t> Call::target_ids(const ConstTensor& targets, const TokenOptions& options) const {
  return problem::resolve_targets(core::targets_of("targets", targets), options, sequence_offsets(), shape().vocab_size,
                                  shape().rows_name);
}

void Call::set_task(problem::Task task, core::Array<core::ByteRange> reads) {
  std::visit(
      [&](auto& source) {
        auto problem = problem::resolve(source.tensors, std::move(task));
        ranks::check_sums(source.outputs, shared_);
        problem::check_outputs(problem, source.outputs);
        if (const auto& slice = context_.options().ranks.slice) {
          reads.push_back(core::range_of("ranks.slice.gathered", slice->gathered.data(), slice->gathered.size()));
        }
        const core::Array<core::ByteRange> tensors = reads_of(problem, source.outputs);
        reads.insert(reads.end(), tensors.begin(), tensors.end());
        reads.insert(reads.end(), reads_.begin(), reads_.end());
        core::check_overlaps(writes_of(problem, source.outputs), reads);
        source.problem = std::move(problem);
      },
      source_);
  check_slice();
  digest_problem();
}

void Call::check_slice() const {
  const auto& slice = context_.options().ranks.slice;
  if (!slice) return;
  const problem::TokenProblem& problem = this->problem();
  if (problem.request.rank)
    core::fail("rank is requested: it needs a second walk, and ranks.slice exchanges statistics only once");
  if (problem.divergence) {
    core::fail("a divergence is requested: it needs a second walk, and ranks.slice exchanges statistics only once");
  }
  const size_t bytes = slice_bytes(), given = slice->gathered.size();
  if (given > 0 && (bytes == 0 || given % bytes != 0)) {
    core::fail("ranks.slice.gathered has ", given, " bytes, which is not a multiple of the ", bytes, " of a slice");
  }
}

size_t Call::slice_bytes() const {
  const fold::CallPartials partials(problem());
  size_t bytes = 0;
  for (int64_t row = 0; row < problem().tokens; ++row) bytes += partials.wire_bytes(fold::Walk::kFirst, row);
  return bytes;
}

std::vector<std::byte> Call::fold_slice() {
  const Ranks& ranks = context_.options().ranks;
  if (!ranks.slice) core::fail("ranks.slice is not set");
  if (!ranks.slice->gathered.empty()) core::fail("ranks.slice.gathered is given: it must be empty in fold_slice()");
  std::vector<std::byte> out(slice_bytes());
  shared_.cut->own_partials = out.data();
  run(nullptr);
  return out;
}

void Call::digest_problem() const {
  if (!meeting_) return;
  ranks::Meeting& meeting = *meeting_;
  meeting.digest([&](ranks::Digests& digests) {
    const StatsRequest& request = problem().request;
    // Whether a divergence shares its softmax depends on temperatures, which a rank without tokens may lack.
    const bool entropy = problem().divergence ? problem().divergence->entropy : request.entropy;
    digests.add("the call's statistics",
                std::string(entropy ? "entropy " : "") + (request.cross ? "cross " : "") +
                    (request.argmax ? "argmax " : "") + (request.rank ? "rank " : "") +
                    (request.outside ? "outside " : "") + (request.square_sum ? "square_sum " : "") +
                    (problem().divergence ? "divergence " : "") +
                    (request.top_k ? "top " + std::to_string(request.top_k) + " " : "") + draws_of(request) + "lse");
  });
  if (const auto* from = std::get_if<FromHidden>(&source_)) {
    if (meeting.vocab.is_shared()) {
      api::digest_tokens(meeting.vocab.digests(), *from->problem, part_);
      meeting.vocab.digests().add("draw_seed", from->problem->request.draw_seed);
    }
    if (meeting.data.is_shared()) api::digest_head(meeting.data.digests(), *from->problem, part_);
    if (from->problem->teacher || from->problem->teacher_logits) {
      if (meeting.vocab.is_shared()) api::digest_teacher_tokens(meeting.vocab.digests(), *from->problem);
      if (meeting.data.is_shared()) api::digest_teacher_head(meeting.data.digests(), *from->problem);
    }
  } else if (meeting.data.is_shared()) {
    api::digest_logits(meeting.data.digests(), *std::get<FromLogits>(source_).problem);
  }
}

// Only for `data`: ranks of the vocabulary agree when they plan, but ranks of a batch may exchange nothing
// else before the call ends.
void Call::meet_data() const {
  if (meeting_) meeting_->data.barrier();
}

void Call::count_part(const Plan& part) {
  workspace_of_parts_ = std::max(workspace_of_parts_, part.workspace_bytes);
  least_workspace_of_parts_ = std::max(least_workspace_of_parts_, part.least_workspace_bytes);
  blas_bytes_of_parts_ = std::max(blas_bytes_of_parts_, part.blas_bytes);
}

void Call::add_parts(Plan& plan) const {
  plan.workspace_bytes = std::max(plan.workspace_bytes, workspace_of_parts_);
  plan.least_workspace_bytes = std::max(plan.least_workspace_bytes, least_workspace_of_parts_);
  plan.blas_bytes = std::max(plan.blas_bytes, blas_bytes_of_parts_);
}

stream::Outcome Call::run(TokenLoss* loss, stats::Returned returned) const {
  meet_data();
  if (context_.options().ranks.slice && !shared_.cut->own_partials && shared_.cut->gathered.empty() &&
      problem().tokens > 0) {
    core::fail("ranks.slice.gathered is empty: a call needs the statistics of all slices");
  }
  stream::Outcome outcome = std::visit(
      [&](const auto& source) {
        return stream::run(context_, *source.problem, source.outputs, shared_, loss, returned);
      },
      source_);
  add_parts(outcome.plan);
  return outcome;
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads) const {
  meet_data();
  return std::visit(
      [&](const auto& source) {
        return stream::run_gradients(context_, *source.problem, source.outputs, shared_, stats, grads);
      },
      source_);
}

Plan Call::run_gradients(const TokenStats& stats, const TokenGrads& grads, double upstream) const {
  core::check_field("upstream", kFinite, upstream);
  stats::Columns columns;
  TokenGrads& scaled = columns.grads;
  for (const auto& [name, column, of_picks] : stats::kGradColumns) {
    scaled.*column = columns.take_grads((grads.*column).size());
    std::transform((grads.*column).begin(), (grads.*column).end(), (scaled.*column).begin(),
                   [upstream](double value) { return value * upstream; });
  }
  return run_gradients(stats, scaled);
}

Plan Call::plan(const TokenLoss* loss, stats::Returned returned) const {
  meet_data();
  Plan plan = std::visit(
      [&](const auto& source) {
        return stream::plan_run(context_, *source.problem, source.outputs, shared_, loss, returned);
      },
      source_);
  add_parts(plan);
  return plan;
}

}  // namespace logitless::api
