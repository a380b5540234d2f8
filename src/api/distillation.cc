// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/distillation.h"

#include <utility>

#include "api/verbs.h"

namespace logitless {

template <>
struct api::Steps<Distillation> {
  static constexpr stats::Returned kRun = {};
  static constexpr stats::Returned kForward = {.stats = true};

  const Distillation& task;

  Teacher teacher() const { return {task.teacher, task.teacher_round_logits_to}; }
  loss::DistillationLoss make_loss(Call& call) const {
    const int64_t tokens = call.shape().tokens;
    loss::check_distillation_options(task, task.targets, tokens);
    // Without targets every row is active; the ids do not matter.
    core::Array<int64_t> ids(static_cast<size_t>(tokens), 0);
    if (task.targets.count() != 0 || tokens == 0) ids = call.target_ids(task.targets, task.token);
    problem::Task problem_task = loss::distillation_task(task);
    if (task.hard_weight != 0) problem::check_scale("hard_temperature", task.hard_temperature, call.shape().dtype);
    if (task.teacher_temperature) problem_task.divergence->teacher_name = "teacher_temperature";
    problem_task.divergence->teacher_rounding = task.teacher_round_logits_to;
    problem_task.picks = problem::target_picks(std::move(ids));
    call.set_task(std::move(problem_task),
                  {core::range_of("targets", task.targets), core::range_of("token_weights", task.token_weights)});
    return make_reduced_loss<loss::DistillationLoss>(call, task);
  }
  void prepare(const Call&, loss::DistillationLoss&) const {}
  Plan backward(Call& call, loss::DistillationLoss& loss, const Forward<Distillation>& forward,
                const Upstream& upstream) const {
    return evaluated_gradients(call, loss, forward, upstream);
  }
};

LOGITLESS_VERBS(Distillation);

}  // namespace logitless
