// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Distillation from a teacher's head, and from its log-probabilities at sets of token ids.
#include "logitless/distillation.h"

#include "c_api/loss_calls.h"
#include "logitless/logits.h"
#include "logitless/set_distillation.h"

using namespace logitless;
using namespace logitless::c_api;

void logitless_distillation_result_init(logitless_distillation_result* result, size_t size) { init(result, size); }

logitless_status logitless_distillation_loss(const logitless_context* context, const logitless_source* source,
                                             const logitless_teacher* teacher, const logitless_targets* targets,
                                             const logitless_distillation_options* options,
                                             const logitless_gradients* gradients,
                                             logitless_distillation_result* result, logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return distillation_loss(from..., teacher_of(teacher), optional_targets(targets), options_of(options), outputs);
  });
}

logitless_status logitless_distillation_loss_forward(const logitless_context* context, const logitless_source* source,
                                                     const logitless_teacher* teacher, const logitless_targets* targets,
                                                     const logitless_distillation_options* options,
                                                     logitless_distillation_result* result, logitless_plan* plan,
                                                     logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return distillation_loss_forward(from..., teacher_of(teacher), optional_targets(targets), options_of(options));
  });
}

logitless_status logitless_distillation_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_teacher* teacher,
    const logitless_targets* targets, const logitless_distillation_options* options, const logitless_forward* forward,
    const double* upstream, size_t upstream_count, const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return distillation_loss_backward(from..., teacher_of(teacher), optional_targets(targets), options_of(options),
                                      forward_of<Forward<Distillation>>(forward),
                                      span_of(upstream, upstream_count, "upstream"), outputs);
  });
}

logitless_status logitless_plan_distillation_loss(const logitless_context* context, const logitless_source* source,
                                                  const logitless_teacher* teacher, const logitless_targets* targets,
                                                  const logitless_distillation_options* options,
                                                  const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_distillation_loss(from..., teacher_of(teacher), optional_targets(targets), options_of(options),
                                  outputs);
  });
}

void logitless_set_teacher_init(logitless_set_teacher* teacher, size_t size) { init(teacher, size); }
void logitless_set_distillation_options_init(logitless_set_distillation_options* options, size_t size) {
  init(options, size);
}
void logitless_set_distillation_result_init(logitless_set_distillation_result* result, size_t size) {
  init(result, size);
}

logitless_status logitless_set_distillation_loss(const logitless_context* context, const logitless_source* source,
                                                 const logitless_set_teacher* teacher, const logitless_targets* targets,
                                                 const logitless_set_distillation_options* options,
                                                 const logitless_gradients* gradients,
                                                 logitless_set_distillation_result* result, logitless_plan* plan) {
  return run_loss(context, source, gradients, result, plan, [&](const auto& outputs, const auto&... from) {
    return set_distillation_loss(from..., set_teacher_of(teacher), optional_targets(targets), options_of(options),
                                 outputs);
  });
}

logitless_status logitless_set_distillation_loss_forward(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    logitless_set_distillation_result* result, logitless_plan* plan, logitless_forward** forward) {
  return run_forward(context, source, result, plan, forward, [&](const auto&... from) {
    return set_distillation_loss_forward(from..., set_teacher_of(teacher), optional_targets(targets),
                                         options_of(options));
  });
}

logitless_status logitless_set_distillation_loss_backward(
    const logitless_context* context, const logitless_source* source, const logitless_set_teacher* teacher,
    const logitless_targets* targets, const logitless_set_distillation_options* options,
    const logitless_forward* forward, const double* upstream, size_t upstream_count,
    const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return set_distillation_loss_backward(from..., set_teacher_of(teacher), optional_targets(targets),
                                          options_of(options), forward_of<Forward<SetDistillation>>(forward),
                                          span_of(upstream, upstream_count, "upstream"), outputs);
  });
}

logitless_status logitless_plan_set_distillation_loss(const logitless_context* context, const logitless_source* source,
                                                      const logitless_set_teacher* teacher,
                                                      const logitless_targets* targets,
                                                      const logitless_set_distillation_options* options,
                                                      const logitless_gradients* gradients, logitless_plan* plan) {
  return run_plan(context, source, gradients, plan, [&](const auto& outputs, const auto&... from) {
    return plan_set_distillation_loss(from..., set_teacher_of(teacher), optional_targets(targets), options_of(options),
                                      outputs);
  });
}
