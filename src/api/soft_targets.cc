// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/soft_targets.h"

#include <utility>

#include "api/loss_call.h"
#include "api/upstream.h"
#include "logitless/logits.h"
#include "loss/soft_targets.h"
#include "stats/statistics.h"

namespace logitless {
namespace {

using api::Call;

struct Distributions {
  static constexpr const char* kName = "soft_cross_entropy";
  using Loss = loss::SoftCrossEntropyLoss;
  using Forward = SoftCrossEntropyForward;
  static constexpr stats::Returned kKept = {.stats = true};

  const SoftTargets& targets;
  const SoftCrossEntropyOptions& options;

  // The loss keeps references to the call's problem and to the options.
  Loss make_loss(Call& call) const {
    loss::check_options(options);
    loss::SoftRows rows =
        loss::check_soft_targets(targets, call.shape(), options.subtract_entropy, call.context().threads());
    problem::Task task = {.options = options.token, .request = {.cross = rows.dense}, .picks = std::move(rows.picks)};
    if (rows.dense) task.cross = std::move(rows.cross);
    call.set_task(std::move(task), loss::ranges_of(targets));
    return Loss(options, std::move(rows), call.problem(), call.totals());
  }
  // Ranks with the same tokens must have the same targets.
  void prepare(const Call& call, Loss& loss) const {
    call.state_tokens([&](ranks::Statement& statement) {
      const loss::SoftRows& rows = loss.rows();
      if (rows.dense) {
        api::state_vector(statement, "targets.rows", call.problem(), rows.masses);
      } else {
        statement.say_array("targets.weights", std::span(rows.weights));
      }
    });
  }
};

}  // namespace

SoftCrossEntropyResult soft_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                                          const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), Distributions{targets, options});
}
SoftCrossEntropyResult soft_cross_entropy(const Context& context, const Logits& logits, const SoftTargets& targets,
                                          const SoftCrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), Distributions{targets, options});
}

SoftCrossEntropyForward soft_cross_entropy_forward(const Context& context, const HiddenStates& hidden,
                                                   const LmHead& head, const SoftTargets& targets,
                                                   const SoftCrossEntropyOptions& options) {
  return api::run_forward(Call(context, hidden, head), Distributions{targets, options});
}
SoftCrossEntropyForward soft_cross_entropy_forward(const Context& context, const Logits& logits,
                                                   const SoftTargets& targets, const SoftCrossEntropyOptions& options) {
  return api::run_forward(Call(context, logits), Distributions{targets, options});
}

Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                                 const SoftCrossEntropyForward& forward, std::span<const double> upstream,
                                 const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Distributions{targets, options}, forward.stats,
                           upstream);
}
Plan soft_cross_entropy_backward(const Context& context, const Logits& logits, const SoftTargets& targets,
                                 const SoftCrossEntropyOptions& options, const SoftCrossEntropyForward& forward,
                                 std::span<const double> upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Distributions{targets, options}, forward.stats, upstream);
}

Plan soft_cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                                 const SoftCrossEntropyForward& forward, double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Distributions{targets, options}, forward.stats,
                           upstream);
}
Plan soft_cross_entropy_backward(const Context& context, const Logits& logits, const SoftTargets& targets,
                                 const SoftCrossEntropyOptions& options, const SoftCrossEntropyForward& forward,
                                 double upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Distributions{targets, options}, forward.stats, upstream);
}

Plan plan_soft_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                             const SoftTargets& targets, const SoftCrossEntropyOptions& options,
                             const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), Distributions{targets, options});
}
Plan plan_soft_cross_entropy(const Context& context, const Logits& logits, const SoftTargets& targets,
                             const SoftCrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), Distributions{targets, options});
}

}  // namespace logitless
