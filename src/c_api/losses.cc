// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "c_api/context.h"
#include "c_api/fields.h"
#include "c_api/inputs.h"
#include "c_api/outputs.h"
#include "c_api/structs.h"
#include "logitless/logits.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {

namespace {

/// Where the caller wants a result. Its sizes are checked before a call, and it is filled after it.
template <class CResult>
class ResultOf {
 public:
  ResultOf(CResult* out, int64_t tokens, int64_t sequences) : out_(out), value_(read(out, "result")) {
    if (has_token_arrays()) check_entries("result.tokens", value_.tokens, tokens);
    if constexpr (requires { value_.sequences; }) {
      if (has_sequence_arrays()) check_entries("result.sequences", value_.sequences, sequences);
    }
  }

  template <class Result>
  void fill(const Result& result) {
    if (!out_) return;
    value_.loss = result.loss;
    copy(result.per_token_logps, value_.per_token_logps);
    if constexpr (requires { value_.per_token_loss; }) copy(result.per_token_loss, value_.per_token_loss);
    if constexpr (requires { value_.sequence_logps; }) copy(result.sequence_logps, value_.sequence_logps);
    if constexpr (requires { value_.sequence_losses; }) copy(result.sequence_losses, value_.sequence_losses);
    put_fields(value_, result.metrics);
    write(value_, out_);
  }

 private:
  bool has_token_arrays() const {
    if constexpr (requires { value_.per_token_loss; }) return value_.per_token_loss || value_.per_token_logps;
    return value_.per_token_logps;
  }
  bool has_sequence_arrays() const {
    if constexpr (requires { value_.sequence_losses; }) return value_.sequence_losses || value_.sequence_logps;
    if constexpr (requires { value_.sequence_logps; }) return value_.sequence_logps;
    return false;
  }

  CResult* out_;
  CResult value_;
};

// What the four functions of every loss have in common. `run` is called with the outputs and the source; it
// returns the C++ result, what a forward half leaves, or a plan.

template <class CResult, class Run>
logitless_status run_loss(const logitless_context* context, const logitless_source* source,
                          const logitless_gradients* gradients, CResult* result, logitless_plan* plan, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, gradients);
    ResultOf<CResult> out(result, call.tokens(), call.sequences());
    check_plan(plan);
    const auto got = call.with([&](const auto& outputs, const auto&... from) { return run(outputs, ran_in, from...); });
    out.fill(got);
    write_plan(got.plan, plan);
  });
}

template <class CResult, class Run>
logitless_status run_forward(const logitless_context* context, const logitless_source* source, CResult* result,
                             logitless_plan* plan, logitless_forward** forward, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    logitless_forward*& left = there(forward, "forward");
    const CallTensors call(source, nullptr);
    ResultOf<CResult> out(result, call.tokens(), call.sequences());
    check_plan(plan);
    auto half = call.with([&](const auto&, const auto&... from) { return run(ran_in, from...); });
    auto kept = std::make_unique<logitless_forward>();
    const auto& result_of_half = kept->forward.emplace<decltype(half)>(std::move(half)).result;
    out.fill(result_of_half);
    write_plan(result_of_half.plan, plan);
    left = kept.release();
  });
}

// The backward half and the plan of a loss return a Plan.
template <class Run>
logitless_status run_plan(const logitless_context* context, const logitless_source* source,
                          const logitless_gradients* gradients, logitless_plan* plan, const Run& run) {
  return guarded([&] {
    const Context& ran_in = context_of(context);
    const CallTensors call(source, gradients);
    check_plan(plan);
    write_plan(call.with([&](const auto& outputs, const auto&... from) { return run(outputs, ran_in, from...); }),
               plan);
  });
}

}  // namespace
}  // namespace logitless::c_api

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
                                  forward_of<CrossEntropyForward>(forward),
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
    return policy_loss_backward(from..., batch_of(batch), options_of(options), forward_of<PolicyForward>(forward),
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
                                    options_of(options), forward_of<PreferenceForward>(forward), upstream, outputs);
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
    return kto_loss_backward(from..., batch_of(batch), options_of(options), forward_of<KtoForward>(forward), upstream,
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
