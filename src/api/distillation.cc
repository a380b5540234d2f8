// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/distillation.h"

#include <utility>

#include "api/loss_call.h"
#include "api/upstream.h"
#include "logitless/distillation.h"
#include "logitless/logits.h"

namespace logitless {
namespace {

using api::Call;

struct Distilled {
  static constexpr const char* kName = "distillation_loss";
  using Loss = loss::DistillationLoss;
  using Forward = DistillationForward;
  static constexpr stats::Returned kKept = {.stats = true};

  const Targets& targets;
  std::optional<DType> teacher_rounding;
  const DistillationOptions& options;

  Loss make_loss(Call& call) const {
    const int64_t tokens = call.shape().tokens;
    loss::check_distillation_options(options, targets, tokens);
    // Without targets every row takes part, whatever it is said to predict.
    core::Array<int64_t> ids(static_cast<size_t>(tokens), 0);
    if (targets.size != 0 || tokens == 0) ids = call.target_ids(targets, options.token);
    problem::Task task = loss::distillation_task(options);
    if (options.hard_weight != 0)
      problem::check_scale("hard_temperature", options.hard_temperature, call.shape().dtype);
    if (options.teacher_temperature) task.divergence->teacher_name = "teacher_temperature";
    task.divergence->teacher_rounding = teacher_rounding;
    loss::SequenceTokens sequences = loss::read_sequences(call.sequence_offsets(), ids);
    task.picks = problem::target_picks(std::move(ids));
    call.set_task(std::move(task), {core::range_of("targets", targets)});
    return Loss(options, std::move(sequences), call.problem(), call.totals());
  }
  void prepare(const Call&, Loss&) const {}
};

}  // namespace

DistillationResult distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                     const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                                     const Gradients& gradients) {
  return api::run(Call(context, hidden, head, teacher, gradients),
                  Distilled{targets, teacher.round_logits_to, options});
}

DistillationForward distillation_loss_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                              const Teacher& teacher, const Targets& targets,
                                              const DistillationOptions& options) {
  static const Gradients kNone;
  return api::run_forward(Call(context, hidden, head, teacher, kNone),
                          Distilled{targets, teacher.round_logits_to, options});
}

Plan distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                                const DistillationForward& forward, std::span<const double> upstream,
                                const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, teacher, gradients),
                           Distilled{targets, teacher.round_logits_to, options}, forward.stats, upstream);
}

Plan distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                                const DistillationForward& forward, double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, teacher, gradients),
                           Distilled{targets, teacher.round_logits_to, options}, forward.stats, upstream);
}

Plan plan_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                            const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, teacher, gradients),
                   Distilled{targets, teacher.round_logits_to, options});
}

DistillationResult distillation_loss(const Context& context, const Logits& logits, const Teacher& teacher,
                                     const Targets& targets, const DistillationOptions& options,
                                     const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, teacher, dlogits), Distilled{targets, teacher.round_logits_to, options});
}

DistillationForward distillation_loss_forward(const Context& context, const Logits& logits, const Teacher& teacher,
                                              const Targets& targets, const DistillationOptions& options) {
  static const LogitsGradient kNone;
  return api::run_forward(Call(context, logits, teacher, kNone), Distilled{targets, teacher.round_logits_to, options});
}

Plan distillation_loss_backward(const Context& context, const Logits& logits, const Teacher& teacher,
                                const Targets& targets, const DistillationOptions& options,
                                const DistillationForward& forward, std::span<const double> upstream,
                                const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, teacher, dlogits),
                           Distilled{targets, teacher.round_logits_to, options}, forward.stats, upstream);
}

Plan distillation_loss_backward(const Context& context, const Logits& logits, const Teacher& teacher,
                                const Targets& targets, const DistillationOptions& options,
                                const DistillationForward& forward, double upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, teacher, dlogits),
                           Distilled{targets, teacher.round_logits_to, options}, forward.stats, upstream);
}

Plan plan_distillation_loss(const Context& context, const Logits& logits, const Teacher& teacher,
                            const Targets& targets, const DistillationOptions& options, const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, teacher, dlogits), Distilled{targets, teacher.round_logits_to, options});
}

}  // namespace logitless
