// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "logitless/cross_entropy.h"

#include "api/loss_call.h"
#include "api/upstream.h"
#include "logitless/dense.h"
#include "logitless/logits.h"
#include "logitless/slices.h"
#include "loss/cross_entropy.h"

namespace logitless {
namespace {

using api::Call;

struct Labels {
  static constexpr const char* kName = "cross_entropy";
  using Loss = loss::CrossEntropyLoss;
  using Forward = CrossEntropyForward;
  static constexpr stats::Returned kKept = {.stats = true};

  const Targets& targets;
  const CrossEntropyOptions& options;

  // The loss keeps references to the call's problem and to the options.
  Loss make_loss(Call& call) const {
    loss::check_options(options);
    call.set_task({.options = options.token,
                   .request = loss::stats_request(options),
                   .picks = problem::target_picks(call.target_ids(targets, options.token)),
                   .cross = loss::cross(options)},
                  {core::range_of("targets", targets)});
    return Loss(options, call.problem(), call.totals());
  }
  void prepare(const Call&, Loss&) const {}
};

}  // namespace

CrossEntropyResult cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                 const Targets& targets, const CrossEntropyOptions& options,
                                 const Gradients& gradients) {
  return api::run(Call(context, hidden, head, gradients), Labels{targets, options});
}
CrossEntropyResult cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                                 const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return api::run(Call(context, logits, dlogits), Labels{targets, options});
}

CrossEntropyForward cross_entropy_forward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                          const Targets& targets, const CrossEntropyOptions& options) {
  return api::run_forward(Call(context, hidden, head), Labels{targets, options});
}
CrossEntropyForward cross_entropy_forward(const Context& context, const Logits& logits, const Targets& targets,
                                          const CrossEntropyOptions& options) {
  return api::run_forward(Call(context, logits), Labels{targets, options});
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, std::span<const double> upstream,
                            const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Labels{targets, options}, forward.stats, upstream);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward,
                            std::span<const double> upstream, const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Labels{targets, options}, forward.stats, upstream);
}

Plan cross_entropy_backward(const Context& context, const HiddenStates& hidden, const LmHead& head,
                            const Targets& targets, const CrossEntropyOptions& options,
                            const CrossEntropyForward& forward, double upstream, const Gradients& gradients) {
  return api::run_backward(Call(context, hidden, head, gradients), Labels{targets, options}, forward.stats, upstream);
}
Plan cross_entropy_backward(const Context& context, const Logits& logits, const Targets& targets,
                            const CrossEntropyOptions& options, const CrossEntropyForward& forward, double upstream,
                            const LogitsGradient& dlogits) {
  return api::run_backward(Call(context, logits, dlogits), Labels{targets, options}, forward.stats, upstream);
}

Plan plan_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head, const Targets& targets,
                        const CrossEntropyOptions& options, const Gradients& gradients) {
  return api::plan(Call(context, hidden, head, gradients), Labels{targets, options});
}
Plan plan_cross_entropy(const Context& context, const Logits& logits, const Targets& targets,
                        const CrossEntropyOptions& options, const LogitsGradient& dlogits) {
  return api::plan(Call(context, logits, dlogits), Labels{targets, options});
}

size_t slice_bytes_per_token(DType hidden, const CrossEntropyOptions& options) {
  return slice_bytes_per_token(hidden, loss::stats_request(options));
}

std::vector<std::byte> cross_entropy_slice(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                           const Targets& targets, const CrossEntropyOptions& options) {
  Call whole(context, hidden, head);
  return whole.complete([&](Call& call) {
    Labels{targets, options}.make_loss(call);
    return call.fold_slice();
  });
}

CrossEntropyResult dense_cross_entropy(const Context& context, const HiddenStates& hidden, const LmHead& head,
                                       const Targets& targets, const CrossEntropyOptions& options,
                                       const Gradients& gradients) {
  ContextOptions dense = context.options();
  dense.plan = PlanKind::kDense;
  return cross_entropy(Context(dense), hidden, head, targets, options, gradients);
}

}  // namespace logitless
