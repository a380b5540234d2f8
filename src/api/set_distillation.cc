// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/set_distillation.h"

#include <utility>

#include "api/verbs.h"

namespace logitless {

template <>
struct api::Steps<SetDistillation> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true};

  const SetDistillation& task;

  // The loss keeps references to the call's problem and to the task.
  loss::SetDistillationLoss make_loss(Call& call) const {
    const problem::Shape& shape = call.shape();
    loss::check_set_options(task, task.targets, shape.tokens);
    const bool renormalised = task.outside == OutsideSet::kRenormalised;
    if (renormalised && call.context().options().ranks.cuts_vocab()) {
      core::fail("outside = renormalised cannot run: ranks.vocab, ranks.slices or ranks.slice cuts the vocabulary");
    }
    core::Array<int64_t> ids;
    if (task.targets.count() != 0) ids = call.target_ids(task.targets, task.token);
    loss::SetRows rows = loss::check_set_teacher(task.teacher, shape, ids, task);
    problem::Task problem_task = {.options = task.token, .request = {}, .picks = std::move(rows.picks)};
    problem_task.request.outside = task.outside == OutsideSet::kTail;
    problem_task.over_picks = renormalised;
    core::Array<core::ByteRange> reads = loss::ranges_of(task.teacher);
    reads.push_back(core::range_of("targets", task.targets));
    reads.push_back(core::range_of("token_weights", task.token_weights));
    call.set_task(std::move(problem_task), std::move(reads));
    return make_reduced_loss<loss::SetDistillationLoss>(call, task, std::move(rows));
  }
  // Ranks with the same tokens must have the same teacher.
  void prepare(const Call& call, loss::SetDistillationLoss& loss) const {
    call.digest_tokens([&](ranks::Digests& digests) {
      digests.add_array("teacher.logps", std::span(std::as_const(loss.rows().logps)));
    });
  }
  Plan backward(Call& call, loss::SetDistillationLoss& loss, const Forward<SetDistillation>& forward,
                const Upstream& upstream) const {
    prepare(call, loss);
    return evaluated_gradients(call, loss, forward, upstream);
  }
};

LOGITLESS_VERBS(SetDistillation);

}  // namespace logitless
