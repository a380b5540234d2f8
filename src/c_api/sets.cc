// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sets of token ids, and target distributions.
#include "c_api/loss_calls.h"
#include "logitless/logits.h"

using namespace logitless;
using namespace logitless::c_api;

void logitless_id_sets_init(logitless_id_sets* sets, size_t size) { init(sets, size); }
void logitless_id_logps_options_init(logitless_id_logps_options* options, size_t size) { init(options, size); }
void logitless_soft_targets_init(logitless_soft_targets* targets, size_t size) { init(targets, size); }
void logitless_soft_cross_entropy_options_init(logitless_soft_cross_entropy_options* options, size_t size) {
  init(options, size);
}
void logitless_soft_cross_entropy_result_init(logitless_soft_cross_entropy_result* result, size_t size) {
  init(result, size);
}

logitless_status logitless_soft_cross_entropy(const logitless_context* context, const logitless_source* source,
                                              const logitless_soft_targets* targets,
                                              const logitless_soft_cross_entropy_options* options,
                                              const logitless_gradients* gradients,
                                              logitless_soft_cross_entropy_result* result, logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return soft_cross_entropy(from..., soft_targets_of(targets), options_of(options), outputs);
  });
}

logitless_status logitless_soft_cross_entropy_forward(const logitless_context* context, const logitless_source* source,
                                                      const logitless_soft_targets* targets,
                                                      const logitless_soft_cross_entropy_options* options,
                                                      logitless_soft_cross_entropy_result* result, logitless_plan* plan,
                                                      logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return soft_cross_entropy_forward(from..., soft_targets_of(targets), options_of(options));
  });
}

logitless_status logitless_soft_cross_entropy_backward(const logitless_context* context, const logitless_source* source,
                                                       const logitless_soft_targets* targets,
                                                       const logitless_soft_cross_entropy_options* options,
                                                       const logitless_forward* forward, const double* upstream,
                                                       size_t upstream_count, const logitless_gradients* gradients,
                                                       logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return soft_cross_entropy_backward(from..., soft_targets_of(targets), options_of(options),
                                       forward_of<Forward<SoftCrossEntropy>>(forward),
                                       span_of(upstream, upstream_count, "upstream"), outputs);
  });
}

logitless_status logitless_plan_soft_cross_entropy(const logitless_context* context, const logitless_source* source,
                                                   const logitless_soft_targets* targets,
                                                   const logitless_soft_cross_entropy_options* options,
                                                   const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_soft_cross_entropy(from..., soft_targets_of(targets), options_of(options), outputs);
  });
}

logitless_status logitless_id_logps(const logitless_context* context, const logitless_source* source,
                                    const logitless_id_sets* sets, const logitless_id_logps_options* options,
                                    double* logps, size_t logp_count, logitless_plan* plan,
                                    logitless_forward** forward) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    if (forward) check_place(forward, "forward");
    const CallTensors call(source, nullptr);
    const IdSets given = sets_of(sets, "sets");
    check_place(logps, "logps");
    if (logps) check_entries("logp_count", static_cast<int64_t>(logp_count), given.entries());
    check_plan(plan);
    IdLogpsResult left = call.with(
        [&](const auto&, const auto&... from) { return id_logps(ran_in, from..., given, options_of(options)); });
    copy(left.logps, logps);
    write_plan(left.plan, plan);
    if (!forward) return;
    auto kept = std::make_unique<logitless_forward>();
    kept->forward.emplace<IdLogpsResult>(std::move(left));
    *forward = kept.release();
  });
}

logitless_status logitless_id_logps_backward(const logitless_context* context, const logitless_source* source,
                                             const logitless_id_sets* sets, const logitless_id_logps_options* options,
                                             const logitless_forward* forward, const double* upstream,
                                             size_t upstream_count, const logitless_gradients* gradients,
                                             logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return id_logps_backward(from..., sets_of(sets, "sets"), options_of(options), forward_of<IdLogpsResult>(forward),
                             span_of(upstream, upstream_count, "upstream"), outputs);
  });
}

logitless_status logitless_plan_id_logps(const logitless_context* context, const logitless_source* source,
                                         const logitless_id_sets* sets, const logitless_id_logps_options* options,
                                         logitless_plan* plan) {
  return run_plan(context, source, nullptr, plan, [&](const auto&, const auto&... from) {
    return plan_id_logps(from..., sets_of(sets, "sets"), options_of(options));
  });
}
