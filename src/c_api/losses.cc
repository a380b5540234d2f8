// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/context.h"
#include "c_api/fields.h"
#include "c_api/inputs.h"
#include "c_api/loss_calls.h"
#include "logitless/logits.h"

using namespace logitless;
using namespace logitless::c_api;

void logitless_cross_entropy_result_init(logitless_cross_entropy_result* result, size_t size) { init(result, size); }
void logitless_policy_result_init(logitless_policy_result* result, size_t size) { init(result, size); }
void logitless_preference_result_init(logitless_preference_result* result, size_t size) { init(result, size); }
void logitless_kto_result_init(logitless_kto_result* result, size_t size) { init(result, size); }

void logitless_forward_free(logitless_forward* forward) { delete forward; }

logitless_status logitless_cross_entropy(const logitless_context* context, const logitless_source* source,
                                         const logitless_targets* targets,
                                         const logitless_cross_entropy_options* options,
                                         const logitless_gradients* gradients, logitless_cross_entropy_result* result,
                                         logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return cross_entropy(from..., targets_of(targets, "targets"), options_of(options), outputs);
  });
}

size_t logitless_cross_entropy_slice_bytes(int32_t hidden_dtype, const logitless_cross_entropy_options* options) {
  size_t bytes = 0;
  guarded([&] { bytes = slice_bytes_per_token(dtype_of(hidden_dtype, "hidden_dtype"), options_of(options)); });
  return bytes;
}

logitless_status logitless_cross_entropy_slice(const logitless_context* context, const logitless_source* source,
                                               const logitless_targets* targets,
                                               const logitless_cross_entropy_options* options, void* slice,
                                               size_t slice_bytes) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const auto task = options_of(options);
    fold_slice(CallTensors(source, nullptr), task, slice, slice_bytes, [&](const auto&... from) {
      return cross_entropy_slice(ran_in, from..., targets_of(targets, "targets"), task);
    });
  });
}

logitless_status logitless_cross_entropy_forward(const logitless_context* context, const logitless_source* source,
                                                 const logitless_targets* targets,
                                                 const logitless_cross_entropy_options* options,
                                                 logitless_cross_entropy_result* result, logitless_plan* plan,
                                                 logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return cross_entropy_forward(from..., targets_of(targets, "targets"), options_of(options));
  });
}

logitless_status logitless_cross_entropy_backward(const logitless_context* context, const logitless_source* source,
                                                  const logitless_targets* targets,
                                                  const logitless_cross_entropy_options* options,
                                                  const logitless_forward* forward, const double* upstream,
                                                  size_t upstream_count, const logitless_gradients* gradients,
                                                  logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return cross_entropy_backward(from..., targets_of(targets, "targets"), options_of(options),
                                  forward_of<Forward<CrossEntropy>>(forward),
                                  span_of(upstream, upstream_count, "upstream"), outputs);
  });
}

logitless_status logitless_plan_cross_entropy(const logitless_context* context, const logitless_source* source,
                                              const logitless_targets* targets,
                                              const logitless_cross_entropy_options* options,
                                              const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_cross_entropy(from..., targets_of(targets, "targets"), options_of(options), outputs);
  });
}

logitless_status logitless_policy_loss(const logitless_context* context, const logitless_source* source,
                                       const logitless_policy_batch* batch, const logitless_policy_options* options,
                                       const logitless_gradients* gradients, logitless_policy_result* result,
                                       logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return policy_loss(from..., batch_of(batch), options_of(options), outputs);
  });
}

logitless_status logitless_policy_loss_forward(const logitless_context* context, const logitless_source* source,
                                               const logitless_policy_batch* batch,
                                               const logitless_policy_options* options, logitless_policy_result* result,
                                               logitless_plan* plan, logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return policy_loss_forward(from..., batch_of(batch), options_of(options));
  });
}

logitless_status logitless_policy_loss_backward(const logitless_context* context, const logitless_source* source,
                                                const logitless_policy_batch* batch,
                                                const logitless_policy_options* options,
                                                const logitless_forward* forward, double upstream,
                                                const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return policy_loss_backward(from..., batch_of(batch), options_of(options), forward_of<Forward<PolicyLoss>>(forward),
                                upstream, outputs);
  });
}

logitless_status logitless_plan_policy_loss(const logitless_context* context, const logitless_source* source,
                                            const logitless_policy_batch* batch,
                                            const logitless_policy_options* options,
                                            const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_policy_loss(from..., batch_of(batch), options_of(options), outputs);
  });
}

logitless_status logitless_preference_loss(const logitless_context* context, const logitless_source* source,
                                           const logitless_targets* targets, const logitless_reference* reference,
                                           const logitless_preference_options* options,
                                           const logitless_gradients* gradients, logitless_preference_result* result,
                                           logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return preference_loss(from..., targets_of(targets, "targets"), reference_of(reference), options_of(options),
                           outputs);
  });
}

logitless_status logitless_preference_loss_forward(const logitless_context* context, const logitless_source* source,
                                                   const logitless_targets* targets,
                                                   const logitless_reference* reference,
                                                   const logitless_preference_options* options,
                                                   logitless_preference_result* result, logitless_plan* plan,
                                                   logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return preference_loss_forward(from..., targets_of(targets, "targets"), reference_of(reference),
                                   options_of(options));
  });
}

logitless_status logitless_preference_loss_backward(const logitless_context* context, const logitless_source* source,
                                                    const logitless_targets* targets,
                                                    const logitless_reference* reference,
                                                    const logitless_preference_options* options,
                                                    const logitless_forward* forward, double upstream,
                                                    const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return preference_loss_backward(from..., targets_of(targets, "targets"), reference_of(reference),
                                    options_of(options), forward_of<Forward<PreferenceLoss>>(forward), upstream, outputs);
  });
}

logitless_status logitless_plan_preference_loss(const logitless_context* context, const logitless_source* source,
                                                const logitless_targets* targets, const logitless_reference* reference,
                                                const logitless_preference_options* options,
                                                const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_preference_loss(from..., targets_of(targets, "targets"), reference_of(reference), options_of(options),
                                outputs);
  });
}

logitless_status logitless_kto_loss(const logitless_context* context, const logitless_source* source,
                                    const logitless_kto_batch* batch, const logitless_kto_options* options,
                                    const logitless_gradients* gradients, logitless_kto_result* result,
                                    logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return kto_loss(from..., batch_of(batch), options_of(options), outputs);
  });
}

logitless_status logitless_kto_loss_forward(const logitless_context* context, const logitless_source* source,
                                            const logitless_kto_batch* batch, const logitless_kto_options* options,
                                            logitless_kto_result* result, logitless_plan* plan,
                                            logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return kto_loss_forward(from..., batch_of(batch), options_of(options));
  });
}

logitless_status logitless_kto_loss_backward(const logitless_context* context, const logitless_source* source,
                                             const logitless_kto_batch* batch, const logitless_kto_options* options,
                                             const logitless_forward* forward, double upstream,
                                             const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return kto_loss_backward(from..., batch_of(batch), options_of(options), forward_of<Forward<KtoLoss>>(forward), upstream,
                             outputs);
  });
}

logitless_status logitless_plan_kto_loss(const logitless_context* context, const logitless_source* source,
                                         const logitless_kto_batch* batch, const logitless_kto_options* options,
                                         const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_kto_loss(from..., batch_of(batch), options_of(options), outputs);
  });
}
