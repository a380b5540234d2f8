// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/distillation.h"

#include <utility>

#include "api/loss_call.h"
#include "logitless/distillation.h"

namespace logitless {
namespace {

using api::Call;

struct Distilled {
  static constexpr const char* kName = "distillation_loss";
  using Loss = loss::DistillationLoss;
  using Forward = DistillationForward;
  static constexpr stats::Returned kKept = {.stats = true, .grads = true};

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
    return Loss(options, std::move(sequences), call.totals());
  }
  void prepare(const Call&, Loss&) const {}
};

// Returns the token gradients of a forward, each times the token's own upstream gradient.
void scale_by_token(const problem::TokenProblem& problem, const TokenGrads& grads, std::span<const double> upstream,
                    stats::Columns& scaled) {
  problem::check_entries("forward.grads.logp", grads.logp.size(), problem);
  problem::check_entries("forward.grads.divergence", grads.divergence.size(), problem);
  scaled.grads.logp = scaled.take_grads(grads.logp.size());
  scaled.grads.divergence = scaled.take_grads(grads.divergence.size());
  for (const int64_t row : problem.active()) {
    const auto i = static_cast<size_t>(row);
    scaled.grads.logp[i] = grads.logp[i] * upstream[i];
    scaled.grads.divergence[i] = grads.divergence[i] * upstream[i];
  }
}

// Under kNone each token has its own upstream gradient, else there is one.
Plan run_backward(Call whole, const Distilled& batch, const DistillationForward& forward,
                  std::span<const double> upstream) {
  return whole.complete([&](Call& call) {
    call.state(Distilled::kName, batch.options);
    batch.make_loss(call);
    const problem::TokenProblem& problem = call.problem();
    if (batch.options.reduction != Reduction::kNone) {
      if (upstream.size() != 1) {
        core::fail("upstream has ", upstream.size(), " entries but must have 1: the loss is one value");
      }
      call.state_tokens([&](ranks::Statement& statement) { statement.say("upstream", upstream[0]); });
      return call.run_gradients(forward.stats, forward.grads, upstream[0]);
    }
    problem::check_entries("upstream", upstream.size(), problem);
    problem::check_finite_entries("upstream", upstream, problem);
    call.state_tokens([&](ranks::Statement& statement) {
      statement.say("upstream", api::entries_of_tokens("upstream gradient", problem, [upstream](int64_t row) {
                      return upstream[static_cast<size_t>(row)];
                    }));
    });
    stats::Columns columns;
    scale_by_token(problem, forward.grads, upstream, columns);
    return call.run_gradients(forward.stats, columns.grads);
  });
}

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
  return run_backward(Call(context, hidden, head, teacher, gradients),
                      Distilled{targets, teacher.round_logits_to, options}, forward, upstream);
}

Plan distillation_loss_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                                const DistillationForward& forward, double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, teacher, gradients),
                           Distilled{targets, teacher.round_logits_to, options}, forward, upstream);
}

Plan plan_distillation_loss(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Teacher& teacher, const Targets& targets, const DistillationOptions& options,
                            const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, teacher, gradients),
                   Distilled{targets, teacher.round_logits_to, options});
}

}  // namespace logitless
