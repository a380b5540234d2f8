// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <utility>

#include "c_api/context.h"
#include "c_api/inputs.h"
#include "c_api/outputs.h"
#include "c_api/structs.h"
#include "logitless/logits.h"

using namespace logitless;
using namespace logitless::c_api;

namespace logitless::c_api {

template <>
logitless_cross_entropy_options defaults() {
  logitless_cross_entropy_options out = {};
  out.loss_scale = 1;
  out.normaliser = NAN;
  return out;
}

template <>
logitless_policy_options defaults() {
  const PolicyOptions options;
  logitless_policy_options out = {};
  out.variant = static_cast<int32_t>(options.variant);
  out.importance_sampling_level = static_cast<int32_t>(options.importance_sampling_level);
  out.epsilon_low = out.epsilon_high = out.delta = NAN;
  out.log_ratio_clamp = *options.log_ratio_clamp;
  out.kl_estimator = static_cast<int32_t>(options.kl_estimator);
  out.top_entropy_quantile = options.top_entropy_quantile;
  out.off_policy_mask_threshold = NAN;
  out.sampler_clip_min = NAN;
  out.sampler_clip_max = *options.sampler_clip_max;
  out.num_items_in_batch = NAN;
  out.sapo_temperature_pos = options.sapo_temperature_pos;
  out.sapo_temperature_neg = options.sapo_temperature_neg;
  out.vespo_k_pos = options.vespo_k_pos;
  out.vespo_lambda_pos = options.vespo_lambda_pos;
  out.vespo_k_neg = options.vespo_k_neg;
  out.vespo_lambda_neg = options.vespo_lambda_neg;
  out.loss_scale = options.loss_scale;
  return out;
}

template <>
logitless_preference_options defaults() {
  const PreferenceOptions options;
  logitless_preference_options out = {};
  out.beta = options.beta;
  out.discopop_tau = options.discopop_tau;
  out.simpo_gamma = options.simpo_gamma;
  out.nll_weight = NAN;
  out.loss_scale = options.loss_scale;
  return out;
}

template <>
logitless_kto_options defaults() {
  const KtoOptions options;
  logitless_kto_options out = {};
  out.beta = options.beta;
  out.desirable_weight = options.desirable_weight;
  out.undesirable_weight = options.undesirable_weight;
  out.loss_scale = options.loss_scale;
  return out;
}

namespace {

CrossEntropyOptions options_of(const logitless_cross_entropy_options* given) {
  const logitless_cross_entropy_options in = read(given, "options");
  CrossEntropyOptions out;
  out.token = token_options_of(in.token);
  out.reduction = enumerator<Reduction>(in.reduction, LOGITLESS_NO_REDUCTION + 1, "reduction");
  out.label_smoothing = in.label_smoothing;
  out.z_loss = in.z_loss;
  out.class_weights = span_of(in.class_weights, in.class_weight_count, "class_weights");
  out.loss_scale = in.loss_scale;
  out.normaliser = optional_of(in.normaliser);
  out.want_accuracy = in.want_accuracy != 0;
  out.want_entropy = in.want_entropy != 0;
  return out;
}

PolicyBatch batch_of(const logitless_policy_batch* given) {
  const logitless_policy_batch in = read(&there(given, "batch"), "batch");
  PolicyBatch out;
  out.chosen_ids = targets_of(in.chosen_ids, "chosen_ids");
  out.advantages = vector_of(in.advantages, "advantages");
  out.old_logps = vector_of(in.old_logps, "old_logps");
  out.ref_logps = vector_of(in.ref_logps, "ref_logps");
  out.sampling_logps = vector_of(in.sampling_logps, "sampling_logps");
  out.mask = span_of(in.mask, in.mask_count, "mask");
  out.advantages_per = enumerator<EntriesPer>(in.advantages_per, LOGITLESS_PER_TOKEN + 1, "advantages_per");
  return out;
}

PolicyOptions options_of(const logitless_policy_options* given) {
  const logitless_policy_options in = read(given, "options");
  PolicyOptions out;
  out.variant = enumerator<PolicyVariant>(in.variant, LOGITLESS_PPO + 1, "variant");
  out.token = token_options_of(in.token);
  out.importance_sampling_level = enumerator<ImportanceLevel>(
      in.importance_sampling_level, LOGITLESS_SEQUENCE_RATIO + 1, "importance_sampling_level");
  out.epsilon_low = optional_of(in.epsilon_low);
  out.epsilon_high = optional_of(in.epsilon_high);
  out.delta = optional_of(in.delta);
  out.log_ratio_clamp = bound_of(in.log_ratio_clamp);
  out.beta = in.beta;
  out.kl_estimator = enumerator<KlEstimator>(in.kl_estimator, LOGITLESS_K3 + 1, "kl_estimator");
  out.use_bias_correction_kl = in.use_bias_correction_kl != 0;
  out.entropy_bonus = in.entropy_bonus;
  out.top_entropy_quantile = in.top_entropy_quantile;
  out.off_policy_mask_threshold = optional_of(in.off_policy_mask_threshold);
  out.sampler_correction =
      enumerator<SamplerCorrection>(in.sampler_correction, LOGITLESS_SEQUENCE_MASK + 1, "sampler_correction");
  out.sampler_clip_min = optional_of(in.sampler_clip_min);
  out.sampler_clip_max = bound_of(in.sampler_clip_max);
  out.num_items_in_batch = optional_of(in.num_items_in_batch);
  if (in.max_completion_length != 0) out.max_completion_length = in.max_completion_length;
  out.sapo_temperature_pos = in.sapo_temperature_pos;
  out.sapo_temperature_neg = in.sapo_temperature_neg;
  out.vespo_k_pos = in.vespo_k_pos;
  out.vespo_lambda_pos = in.vespo_lambda_pos;
  out.vespo_k_neg = in.vespo_k_neg;
  out.vespo_lambda_neg = in.vespo_lambda_neg;
  out.loss_scale = in.loss_scale;
  out.want_entropy = in.want_entropy != 0;
  return out;
}

Reference reference_of(const logitless_reference* given) {
  const logitless_reference in = read(given, "reference");
  Reference out;
  out.logps = vector_of(in.logps, "reference.logps");
  out.logps_per = enumerator<EntriesPer>(in.logps_per, LOGITLESS_PER_TOKEN + 1, "reference.logps_per");
  if (in.hidden || in.head) {
    out.hidden = hidden_of(there(in.hidden, "reference.hidden"), "reference.hidden");
    out.head = head_of(there(in.head, "reference.head"), "reference.head");
  }
  return out;
}

PreferenceOptions options_of(const logitless_preference_options* given) {
  const logitless_preference_options in = read(given, "options");
  PreferenceOptions out;
  if (in.terms || in.term_count > 0) {
    out.terms.clear();
    for (const logitless_preference_term& term : span_of(in.terms, in.term_count, "terms")) {
      out.terms.push_back({enumerator<PreferenceLoss>(term.loss, LOGITLESS_CPO + 1, "terms.loss"), term.weight});
    }
  }
  out.beta = in.beta;
  out.label_smoothing = in.label_smoothing;
  out.average_log_prob = in.average_log_prob != 0;
  out.discopop_tau = in.discopop_tau;
  out.simpo_gamma = in.simpo_gamma;
  out.nll_weight = optional_of(in.nll_weight);
  out.token = token_options_of(in.token);
  out.loss_scale = in.loss_scale;
  out.want_entropy = in.want_entropy != 0;
  return out;
}

KtoBatch batch_of(const logitless_kto_batch* given) {
  const logitless_kto_batch in = read(&there(given, "batch"), "batch");
  KtoBatch out;
  out.targets = targets_of(in.targets, "targets");
  out.labels = span_of(in.labels, in.label_count, "labels");
  out.reference = reference_of(in.reference);
  out.kl_logps = vector_of(in.kl_logps, "kl_logps");
  out.kl_ref_logps = vector_of(in.kl_ref_logps, "kl_ref_logps");
  return out;
}

KtoOptions options_of(const logitless_kto_options* given) {
  const logitless_kto_options in = read(given, "options");
  KtoOptions out;
  out.beta = in.beta;
  out.desirable_weight = in.desirable_weight;
  out.undesirable_weight = in.undesirable_weight;
  out.average_log_prob = in.average_log_prob != 0;
  out.token = token_options_of(in.token);
  out.loss_scale = in.loss_scale;
  out.want_entropy = in.want_entropy != 0;
  return out;
}

/// This is where the caller wants a result. Its sizes are checked before a call, and it is filled after it.
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
    value_.counted_tokens = result.metrics.tokens;
    value_.mean_entropy = result.metrics.mean_entropy;
    fill_metrics(result.metrics, value_);
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

  static void fill_metrics(const CrossEntropyMetrics& from, logitless_cross_entropy_result& to) {
    to.mean_nll = from.mean_nll;
    to.perplexity = from.perplexity;
    to.z_loss = from.z_loss;
    to.accuracy = from.accuracy;
  }
  static void fill_metrics(const PolicyMetrics& from, logitless_policy_result& to) {
    to.mean_ratio = from.mean_ratio;
    to.clip_fraction_low = from.clip_fraction_low;
    to.clip_fraction_high = from.clip_fraction_high;
    to.clip_fraction = from.clip_fraction;
    to.mean_kl = from.mean_kl;
    to.mean_logp = from.mean_logp;
  }
  static void fill_metrics(const PreferenceMetrics& from, logitless_preference_result& to) {
    to.pairs = from.pairs;
    to.chosen_reward = from.chosen_reward;
    to.rejected_reward = from.rejected_reward;
    to.margin = from.margin;
    to.accuracy = from.accuracy;
    to.chosen_logp = from.chosen_logp;
    to.rejected_logp = from.rejected_logp;
    to.nll = from.nll;
  }
  static void fill_metrics(const KtoMetrics& from, logitless_kto_result& to) {
    to.desirable = from.desirable;
    to.undesirable = from.undesirable;
    to.kl = from.kl;
    to.desirable_reward = from.desirable_reward;
    to.undesirable_reward = from.undesirable_reward;
    to.margin = from.margin;
    to.desirable_logp = from.desirable_logp;
    to.undesirable_logp = from.undesirable_logp;
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
    const Call call(source, gradients);
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
    const Call call(source, nullptr);
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
    const Call call(source, gradients);
    check_plan(plan);
    write_plan(call.with([&](const auto& outputs, const auto&... from) { return run(outputs, ran_in, from...); }),
               plan);
  });
}

}  // namespace
}  // namespace logitless::c_api

void logitless_cross_entropy_options_init(logitless_cross_entropy_options* options, size_t size) {
  init(options, size);
}
void logitless_cross_entropy_result_init(logitless_cross_entropy_result* result, size_t size) { init(result, size); }
void logitless_policy_batch_init(logitless_policy_batch* batch, size_t size) { init(batch, size); }
void logitless_policy_options_init(logitless_policy_options* options, size_t size) { init(options, size); }
void logitless_policy_result_init(logitless_policy_result* result, size_t size) { init(result, size); }
void logitless_reference_init(logitless_reference* reference, size_t size) { init(reference, size); }
void logitless_preference_options_init(logitless_preference_options* options, size_t size) { init(options, size); }
void logitless_preference_result_init(logitless_preference_result* result, size_t size) { init(result, size); }
void logitless_kto_batch_init(logitless_kto_batch* batch, size_t size) { init(batch, size); }
void logitless_kto_options_init(logitless_kto_options* options, size_t size) { init(options, size); }
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
