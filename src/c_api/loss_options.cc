// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "c_api/loss_options.h"

#include <cmath>

#include "c_api/inputs.h"
#include "c_api/status.h"
#include "c_api/structs.h"

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

}  // namespace logitless::c_api

void logitless_cross_entropy_options_init(logitless_cross_entropy_options* options, size_t size) {
  init(options, size);
}
void logitless_policy_batch_init(logitless_policy_batch* batch, size_t size) { init(batch, size); }
void logitless_policy_options_init(logitless_policy_options* options, size_t size) { init(options, size); }
void logitless_reference_init(logitless_reference* reference, size_t size) { init(reference, size); }
void logitless_preference_options_init(logitless_preference_options* options, size_t size) { init(options, size); }
void logitless_kto_batch_init(logitless_kto_batch* batch, size_t size) { init(batch, size); }
void logitless_kto_options_init(logitless_kto_options* options, size_t size) { init(options, size); }
