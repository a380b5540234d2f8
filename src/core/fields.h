// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 The lists of each task's tensors
// and options, and of what calls report, with the names that every surface uses. C, Python, configs, JSON,
// checks, ranks and tests walk them, so a new option is a member, and a line in its list here.
//
//     PolicyLoss task;
//     visit_fields(FieldsOf<PolicyLoss>(), [](const Field& field, auto& member) { ... }, task);
//
// A walk may go over several structures with members of these names: visit(field, member, member of the
// second, ...). It does not compile where one of them lacks a member. Options of tokens stand in those of
// tasks as a member `token`.
#pragma once

#include <type_traits>

#include "core/field.h"
#include "logitless/backward.h"
#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/environment.h"
#include "logitless/id_sets.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/token_stats.h"

namespace logitless {

inline constexpr Interval kTopCount = {.text = "an integer from 0 to 256", .low = 0, .high = kMostTopK};

/// Calls visit(field, members...) for each of BackwardOptions.
template <class Visit, class... S>
void visit_fields(FieldsOf<BackwardOptions>, const Visit& visit, S&&... s) {
  visit(Field("mode"), s.mode...);
  visit(Field("noise", kShareBelowOne), s.noise...);
  visit(Field("theta", kThreshold), s.theta...);
  visit(Field("tolerance", kShareBelowOne), s.tolerance...);
  visit(Field("seed"), s.seed...);
}

/// Calls visit(field, members...) for each of TokenOptions.
template <class Visit, class... S>
void visit_fields(FieldsOf<TokenOptions>, const Visit& visit, S&&... s) {
  visit(Field("ignore_index"), s.ignore_index...);
  visit(Field("shift", kPositions), s.shift...);
  visit(Field("temperature", kPositive), s.temperature...);
  visit(Field("temperatures", kPositive), s.temperatures...);
  visit(Field("temperature_meaning"), s.temperature_meaning...);
  visit(Field("round_logits_to"), s.round_logits_to...);
}

/// Calls visit(field, members...) for each of StatsRequest.
template <class Visit, class... S>
void visit_fields(FieldsOf<StatsRequest>, const Visit& visit, S&&... s) {
  visit(Field("entropy"), s.entropy...);
  visit(Field("cross"), s.cross...);
  visit(Field("argmax"), s.argmax...);
  visit(Field("rank"), s.rank...);
  visit(Field("top_k", kTopCount), s.top_k...);
  visit(Field("cross_weights", kNotNegative), s.cross_weights...);
  visit(Field("outside"), s.outside...);
  visit(Field("square_sum"), s.square_sum...);
}

/// Calls visit(field, members...) for each of CrossEntropy.
template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit(Field("reduction"), s.reduction...);
  visit(Field("label_smoothing", kShare), s.label_smoothing...);
  visit(Field("z_loss", kNotNegative), s.z_loss...);
  visit(Field("dft"), s.dft...);
  visit(Field("class_weights", kNotNegative), s.class_weights...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("num_items_in_batch", kPositive), s.num_items_in_batch...);
  visit(Field("want_accuracy"), s.want_accuracy...);
  visit(Field("want_entropy"), s.want_entropy...);
}

/// Calls visit(field, members...) for each of PolicyLoss.
template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type"), s.loss_type...);
  visit(Field("token"), s.token...);
  visit(Field("importance_sampling_level"), s.importance_sampling_level...);
  visit(Field("epsilon_low", kNotNegative), s.epsilon_low...);
  visit(Field("epsilon_high", kNotNegative), s.epsilon_high...);
  visit(Field("delta", kPositive), s.delta...);
  visit(Field("log_ratio_clamp", kLogRatio), s.log_ratio_clamp...);
  visit(Field("beta", kNotNegative), s.beta...);
  visit(Field("kl_estimator"), s.kl_estimator...);
  visit(Field("use_bias_correction_kl"), s.use_bias_correction_kl...);
  visit(Field("entropy_bonus"), s.entropy_bonus...);
  visit(Field("top_entropy_quantile", kPositiveShare), s.top_entropy_quantile...);
  visit(Field("off_policy_mask_threshold"), s.off_policy_mask_threshold...);
  visit(Field("sampler_correction"), s.sampler_correction...);
  visit(Field("sampler_clip_min", kNotNegative), s.sampler_clip_min...);
  visit(Field("sampler_clip_max", kPositive), s.sampler_clip_max...);
  visit(Field("teacher_weight"), s.teacher_weight...);
  visit(Field("teacher_against"), s.teacher_against...);
  visit(Field("teacher_discount", kShare), s.teacher_discount...);
  visit(Field("trust_region"), s.trust_region...);
  visit(Field("trust_region_low", kNotNegative), s.trust_region_low...);
  visit(Field("trust_region_high", kNotNegative), s.trust_region_high...);
  visit(Field("m2_threshold", kPositive), s.m2_threshold...);
  visit(Field("sampler_penalty", kNotNegative), s.sampler_penalty...);
  visit(Field("positive_nll_weight", kNotNegative), s.positive_nll_weight...);
  visit(Field("aggregation"), s.aggregation...);
  visit(Field("num_items_in_batch", kPositive), s.num_items_in_batch...);
  visit(Field("max_completion_length", kCount), s.max_completion_length...);
  visit(Field("num_sequences", kPositive), s.num_sequences...);
  visit(Field("count_empty_sequences"), s.count_empty_sequences...);
  visit(Field("sapo_temperature_pos", kPositive), s.sapo_temperature_pos...);
  visit(Field("sapo_temperature_neg", kPositive), s.sapo_temperature_neg...);
  visit(Field("vespo_k_pos"), s.vespo_k_pos...);
  visit(Field("vespo_lambda_pos"), s.vespo_lambda_pos...);
  visit(Field("vespo_k_neg"), s.vespo_k_neg...);
  visit(Field("vespo_lambda_neg"), s.vespo_lambda_neg...);
  visit(Field("dro_tau", kNotNegative), s.dro_tau...);
  visit(Field("topr_weight_pos", kNotNegative), s.topr_weight_pos...);
  visit(Field("topr_weight_neg", kNotNegative), s.topr_weight_neg...);
  visit(Field("cov_share", kPositiveShare), s.cov_share...);
  visit(Field("cov_low"), s.cov_low...);
  visit(Field("cov_high"), s.cov_high...);
  visit(Field("cov_seed"), s.cov_seed...);
  visit(Field("cov_kl_weight", kNotNegative), s.cov_kl_weight...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("want_entropy"), s.want_entropy...);
}

/// Calls visit(field, members...) for each of Distillation.
template <class Visit, class... S>
void visit_fields(FieldsOf<Distillation>, const Visit& visit, S&&... s) {
  visit(Field("loss_type"), s.loss_type...);
  visit(Field("token"), s.token...);
  visit(Field("teacher_temperature", kPositive), s.teacher_temperature...);
  visit(Field("beta", kShare), s.beta...);
  visit(Field("skew", kShare), s.skew...);
  visit(Field("forward_weight", kShare), s.forward_weight...);
  visit(Field("acceptance_decay", kNotNegative), s.acceptance_decay...);
  visit(Field("divergence_weight", kNotNegative), s.divergence_weight...);
  visit(Field("temperature_squared"), s.temperature_squared...);
  visit(Field("hard_weight", kNotNegative), s.hard_weight...);
  visit(Field("hard_temperature", kPositive), s.hard_temperature...);
  visit(Field("reduction"), s.reduction...);
  visit(Field("mean_over"), s.mean_over...);
  visit(Field("num_items_in_batch", kPositive), s.num_items_in_batch...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("want_entropy"), s.want_entropy...);
  visit(Field("want_agreement"), s.want_agreement...);
}

/// Calls visit(field, members...) for each of PreferenceLoss.
template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type"), s.loss_type...);
  visit(Field("loss_weights"), s.loss_weights...);
  visit(Field("beta", kPositive), s.beta...);
  visit(Field("label_smoothing", kShareBelowOne), s.label_smoothing...);
  visit(Field("average_log_prob"), s.average_log_prob...);
  visit(Field("ref_logps_are"), s.ref_logps_are...);
  visit(Field("discopop_tau", kPositive), s.discopop_tau...);
  visit(Field("simpo_gamma"), s.simpo_gamma...);
  visit(Field("f_divergence"), s.f_divergence...);
  visit(Field("f_alpha"), s.f_alpha...);
  visit(Field("ld_alpha", kShare), s.ld_alpha...);
  visit(Field("use_weighting"), s.use_weighting...);
  visit(Field("reward_alpha"), s.reward_alpha...);
  visit(Field("nll_weight", kNotNegative), s.nll_weight...);
  visit(Field("token"), s.token...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("want_entropy"), s.want_entropy...);
}

/// Calls visit(field, members...) for each of KtoLoss.
template <class Visit, class... S>
void visit_fields(FieldsOf<KtoLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type"), s.loss_type...);
  visit(Field("beta", kPositive), s.beta...);
  visit(Field("desirable_weight", kNotNegative), s.desirable_weight...);
  visit(Field("undesirable_weight", kNotNegative), s.undesirable_weight...);
  visit(Field("bco_delta"), s.bco_delta...);
  visit(Field("average_log_prob"), s.average_log_prob...);
  visit(Field("ref_logps_are"), s.ref_logps_are...);
  visit(Field("token"), s.token...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("want_entropy"), s.want_entropy...);
}

/// Calls visit(field, members...) for each of IdLogps.
template <class Visit, class... S>
void visit_fields(FieldsOf<IdLogps>, const Visit& visit, S&&... s) {
  visit(Field("normalise_over"), s.normalise_over...);
  visit(Field("token"), s.token...);
}

/// Calls visit(field, members...) for each of SoftCrossEntropy.
template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit(Field("reduction"), s.reduction...);
  visit(Field("subtract_entropy"), s.subtract_entropy...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("num_items_in_batch", kPositive), s.num_items_in_batch...);
}

/// Calls visit(field, members...) for each of SetDistillation.
template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillation>, const Visit& visit, S&&... s) {
  visit(Field("loss_type"), s.loss_type...);
  visit(Field("outside"), s.outside...);
  visit(Field("token"), s.token...);
  visit(Field("beta", kShare), s.beta...);
  visit(Field("skew", kShare), s.skew...);
  visit(Field("forward_weight", kShare), s.forward_weight...);
  visit(Field("divergence_weight", kNotNegative), s.divergence_weight...);
  visit(Field("temperature_squared"), s.temperature_squared...);
  visit(Field("hard_weight", kNotNegative), s.hard_weight...);
  visit(Field("reduction"), s.reduction...);
  visit(Field("mean_over"), s.mean_over...);
  visit(Field("num_items_in_batch", kPositive), s.num_items_in_batch...);
  visit(Field("loss_scale"), s.loss_scale...);
  visit(Field("tail_floor", kShareBelowOne), s.tail_floor...);
}

/// Calls visit(field, members...) for each of TokenStatistics.
template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStatistics>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit_fields(FieldsOf<StatsRequest>(), visit, s.request...);
}

/// Calls visit(field, members...) for each of CustomLoss.
template <class Visit, class... S>
void visit_fields(FieldsOf<CustomLoss>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
}

/// Calls visit(field, members...) for each of ContextOptions and its Ranks, but for the communicators: these
/// are no values, and each surface makes its own.
template <class Visit, class... S>
void visit_fields(FieldsOf<ContextOptions>, const Visit& visit, S&&... s) {
  visit(Field("threads"), s.threads...);
  visit(Field("workspace_bytes"), s.workspace_bytes...);
  visit(Field("workspace"), s.workspace...);
  visit(Field("plan"), s.plan...);
  visit(Field("row_tile"), s.row_tile...);
  visit(Field("vocab_tile"), s.vocab_tile...);
  visit(Field("row_block"), s.row_block...);
  visit(Field("gemm_backend"), s.gemm_backend...);
  visit(Field("gradient_precision"), s.gradient_precision...);
  visit(Field("simd_target"), s.simd_target...);
  visit(Field("slices"), s.ranks.slices...);
  visit(Field("own_d_hidden"), s.ranks.own_d_hidden...);
  visit(Field("sum_d_weight"), s.ranks.sum_d_weight...);
}

/// Calls visit(field, members...) for each of CrossEntropy's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<CrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of PolicyLoss's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<PolicyLoss>, const Visit& visit, S&&... s) {
  visit(Field("chosen_ids"), s.chosen_ids...);
  visit(Field("advantages"), s.advantages...);
  visit(Field("old_logps"), s.old_logps...);
  visit(Field("ref_logps"), s.ref_logps...);
  visit(Field("sampling_logps"), s.sampling_logps...);
  visit(Field("teacher_logps"), s.teacher_logps...);
  visit(Field("scores"), s.scores...);
  visit(Field("mask"), s.mask...);
  visit(Field("advantages_per"), s.advantages_per...);
  visit(Field("kept"), s.kept...);
}

/// Calls visit(field, members...) for each of PreferenceLoss's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<PreferenceLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("reference"), s.reference...);
}

/// Calls visit(field, members...) for each of KtoLoss's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<KtoLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(Field("labels"), s.labels...);
  visit(Field("reference"), s.reference...);
  visit(Field("kl_logps"), s.kl_logps...);
  visit(Field("kl_ref_logps"), s.kl_ref_logps...);
  visit(Field("sequence_weights"), s.sequence_weights...);
  visit(Field("reward_targets"), s.reward_targets...);
}

/// Calls visit(field, members...) for each of SoftCrossEntropy's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<SoftCrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of Distillation's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<Distillation>, const Visit& visit, S&&... s) {
  visit(Field("teacher"), s.teacher...);
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of SetDistillation's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<SetDistillation>, const Visit& visit, S&&... s) {
  visit(Field("teacher"), s.teacher...);
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of IdLogps's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<IdLogps>, const Visit& visit, S&&... s) {
  visit(Field("sets"), s.sets...);
}

/// Calls visit(field, members...) for each of TokenStatistics's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<TokenStatistics>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of CustomLoss's tensors.
template <class Visit, class... S>
void visit_fields(TensorsOf<CustomLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
}

/// Calls visit(field, members...) for each of TokenStats.
template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStats>, const Visit& visit, S&&... s) {
  visit(Field("logp"), s.logp...);
  visit(Field("lse"), s.lse...);
  visit(Field("entropy"), s.entropy...);
  visit(Field("cross"), s.cross...);
  visit(Field("argmax"), s.argmax...);
  visit(Field("rank"), s.rank...);
  visit(Field("outside"), s.outside...);
  visit(Field("outside_max"), s.outside_max...);
  visit(Field("max_logit"), s.max_logit...);
  visit(Field("log_sum"), s.log_sum...);
  visit(Field("top_ids"), s.top_ids...);
  visit(Field("top_logps"), s.top_logps...);
  visit(Field("square_sum"), s.square_sum...);
}

/// Calls visit(field, members...) for each of TokenGrads.
template <class Visit, class... S>
void visit_fields(FieldsOf<TokenGrads>, const Visit& visit, S&&... s) {
  visit(Field("logp"), s.logp...);
  visit(Field("lse"), s.lse...);
  visit(Field("entropy"), s.entropy...);
  visit(Field("cross"), s.cross...);
  visit(Field("outside"), s.outside...);
}

/// Calls visit(field, members...) for each of CrossEntropyMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens"), s.tokens...);
  visit(Field("mean_nll"), s.mean_nll...);
  visit(Field("perplexity"), s.perplexity...);
  visit(Field("z_loss"), s.z_loss...);
  visit(Field("accuracy"), s.accuracy...);
  visit(Field("mean_entropy"), s.mean_entropy...);
}

/// Calls visit(field, members...) for each of SoftCrossEntropyMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens"), s.tokens...);
  visit(Field("mean_cross_entropy"), s.mean_cross_entropy...);
  visit(Field("mean_target_entropy"), s.mean_target_entropy...);
  visit(Field("mean_kl"), s.mean_kl...);
}

/// Calls visit(field, members...) for each of SetDistillationMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillationMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens"), s.tokens...);
  visit(Field("mean_divergence"), s.mean_divergence...);
  visit(Field("mean_teacher_mass"), s.mean_teacher_mass...);
  visit(Field("mean_student_mass"), s.mean_student_mass...);
  visit(Field("mean_nll"), s.mean_nll...);
}

/// Calls visit(field, members...) for each of PolicyMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens"), s.tokens...);
  visit(Field("mean_ratio"), s.mean_ratio...);
  visit(Field("clip_fraction_low"), s.clip_fraction_low...);
  visit(Field("clip_fraction_high"), s.clip_fraction_high...);
  visit(Field("clip_fraction"), s.clip_fraction...);
  visit(Field("mean_kl"), s.mean_kl...);
  visit(Field("mean_entropy"), s.mean_entropy...);
  visit(Field("mean_logp"), s.mean_logp...);
  visit(Field("mean_teacher_kl"), s.mean_teacher_kl...);
}

/// Calls visit(field, members...) for each of DistillationMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<DistillationMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens"), s.tokens...);
  visit(Field("mean_divergence"), s.mean_divergence...);
  visit(Field("mean_acceptance"), s.mean_acceptance...);
  visit(Field("mean_nll"), s.mean_nll...);
  visit(Field("agreement"), s.agreement...);
  visit(Field("mean_entropy"), s.mean_entropy...);
  visit(Field("mean_teacher_entropy"), s.mean_teacher_entropy...);
}

/// Calls visit(field, members...) for each of PreferenceMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceMetrics>, const Visit& visit, S&&... s) {
  visit(Field("pairs"), s.pairs...);
  visit(Field("tokens"), s.tokens...);
  visit(Field("chosen_reward"), s.chosen_reward...);
  visit(Field("rejected_reward"), s.rejected_reward...);
  visit(Field("margin"), s.margin...);
  visit(Field("accuracy"), s.accuracy...);
  visit(Field("chosen_logp"), s.chosen_logp...);
  visit(Field("rejected_logp"), s.rejected_logp...);
  visit(Field("nll"), s.nll...);
  visit(Field("mean_entropy"), s.mean_entropy...);
}

/// Calls visit(field, members...) for each of KtoMetrics.
template <class Visit, class... S>
void visit_fields(FieldsOf<KtoMetrics>, const Visit& visit, S&&... s) {
  visit(Field("desirable"), s.desirable...);
  visit(Field("undesirable"), s.undesirable...);
  visit(Field("tokens"), s.tokens...);
  visit(Field("kl"), s.kl...);
  visit(Field("desirable_reward"), s.desirable_reward...);
  visit(Field("undesirable_reward"), s.undesirable_reward...);
  visit(Field("margin"), s.margin...);
  visit(Field("desirable_logp"), s.desirable_logp...);
  visit(Field("undesirable_logp"), s.undesirable_logp...);
  visit(Field("mean_entropy"), s.mean_entropy...);
}

/// Calls visit(field, members...) for each of Environment.
template <class Visit, class... S>
void visit_fields(FieldsOf<Environment>, const Visit& visit, S&&... s) {
  visit(Field("version"), s.version...);
  visit(Field("cpu"), s.cpu...);
  visit(Field("cores"), s.cores...);
  visit(Field("threads"), s.threads...);
  visit(Field("l1d_bytes"), s.l1d_bytes...);
  visit(Field("l2_bytes"), s.l2_bytes...);
  visit(Field("l3_bytes"), s.l3_bytes...);
  visit(Field("simd_target"), s.simd_target...);
  visit(Field("simd_targets"), s.simd_targets...);
  visit(Field("gemm_backend"), s.gemm_backend...);
  visit(Field("gemm_backends"), s.gemm_backends...);
  visit(Field("gemm_float32"), s.gemm_float32...);
  visit(Field("gemm_bf16"), s.gemm_bf16...);
  visit(Field("blas_config"), s.blas_config...);
  visit(Field("blas_core"), s.blas_core...);
  visit(Field("blas_threading"), s.blas_threading...);
  visit(Field("blas_max_threads"), s.blas_max_threads...);
  visit(Field("warnings"), s.warnings...);
}

/// Walks an options structure as one list, in which the options of tokens stand among the others.
template <class Structure, class Visit, class... S>
void visit_flat(FieldsOf<Structure> list, const Visit& visit, S&&... s) {
  const auto flatten = [&](const Field& field, auto&&... members) {
    if constexpr ((std::is_same_v<std::remove_cvref_t<decltype(members)>, TokenOptions> && ...)) {
      visit_fields(FieldsOf<TokenOptions>(), visit, members...);
    } else {
      visit(field, members...);
    }
  };
  visit_fields(list, flatten, s...);
}

}  // namespace logitless
