// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/set_distillation.h"

#include <utility>

#include "api/loss_call.h"
#include "api/upstream.h"
#include "logitless/logits.h"
#include "loss/set_distillation.h"

namespace logitless {
namespace {

using api::Call;

struct SetsOfTeacher {
  static constexpr const char* kName = "set_distillation_loss";
  using Loss = loss::SetDistillationLoss;
  using Forward = SetDistillationForward;
  static constexpr stats::Returned kKept = {.stats = true};

  const SetTeacher& teacher;
  const Targets& targets;
  const SetDistillationOptions& options;

  // The loss keeps references to the call's problem and to the options.
  Loss make_loss(Call& call) const {
    const problem::Shape& shape = call.shape();
    loss::check_set_options(options, targets, shape.tokens);
    const bool renormalised = options.outside == OutsideSet::kRenormalised;
    if (renormalised && call.context().options().ranks.cuts_vocab()) {
      core::fail("outside = renormalised cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
    }
    core::Array<int64_t> ids;
    if (targets.size != 0) ids = call.target_ids(targets, options.token);
    loss::SetRows rows = loss::check_set_teacher(teacher, shape, ids, options);
    // Which rows take part; what they predict does not matter here.
    core::Array<int64_t> active(static_cast<size_t>(shape.tokens), problem::kNoTarget);
    for (const int64_t row : rows.picks.rows) active[static_cast<size_t>(row)] = 0;
    loss::SequenceTokens sequences = loss::read_sequences(call.sequence_offsets(), std::move(active));
    problem::Task task = {.options = options.token, .request = {}, .picks = std::move(rows.picks)};
    task.request.outside = options.outside == OutsideSet::kTail;
    task.over_picks = renormalised;
    core::Array<core::ByteRange> reads = loss::ranges_of(teacher);
    reads.push_back(core::range_of("targets", targets));
    call.set_task(std::move(task), std::move(reads));
    return Loss(options, std::move(rows), std::move(sequences), call.problem(), call.totals());
  }
  // Ranks with the same tokens must have the same teacher.
  void prepare(const Call& call, Loss& loss) const {
    call.state_tokens([&](ranks::Statement& statement) {
      statement.say_array("teacher.logps", std::span(std::as_const(loss.rows().logps)));
    });
  }
};

}  // namespace

SetDistillationResult set_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                            const SetTeacher& teacher, const Targets& targets,
                                            const SetDistillationOptions& options, const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), SetsOfTeacher{teacher, targets, options});
}
SetDistillationResult set_distillation_loss(const Context& context, const Logits& logits, const SetTeacher& teacher,
                                            const Targets& targets, const SetDistillationOptions& options,
                                            const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), SetsOfTeacher{teacher, targets, options});
}

SetDistillationForward set_distillation_loss_forward(const Context& context, const HiddenStates& hidden,
                                                     const LmHead& head, const SetTeacher& teacher,
                                                     const Targets& targets, const SetDistillationOptions& options) {
  return api::run_forward(Call(context, hidden, head), SetsOfTeacher{teacher, targets, options});
}
SetDistillationForward set_distillation_loss_forward(const Context& context, const Logits& logits,
                                                     const SetTeacher& teacher, const Targets& targets,
                                                     const SetDistillationOptions& options) {
  return api::run_forward(Call(context, logits), SetsOfTeacher{teacher, targets, options});
}

Plan set_distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                    const SetTeacher& teacher, const Targets& targets,
                                    const SetDistillationOptions& options, const SetDistillationForward& forward,
                                    std::span<const double> upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), SetsOfTeacher{teacher, targets, options},
                           forward.stats, upstream);
}
Plan set_distillation_loss_backward(const Context& context, const Logits& logits, const SetTeacher& teacher,
                                    const Targets& targets, const SetDistillationOptions& options,
                                    const SetDistillationForward& forward, std::span<const double> upstream,
                                    const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), SetsOfTeacher{teacher, targets, options}, forward.stats,
                           upstream);
}

Plan plan_set_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                const SetTeacher& teacher, const Targets& targets,
                                const SetDistillationOptions& options, const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), SetsOfTeacher{teacher, targets, options});
}
Plan plan_set_distillation_loss(const Context& context, const Logits& logits, const SetTeacher& teacher,
                                const Targets& targets, const SetDistillationOptions& options,
                                const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), SetsOfTeacher{teacher, targets, options});
}

}  // namespace logitless
