// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The lists of each task's tensors, options and results, and of the values that calls report, with their
// names on every surface and one sentence about each. C, Python, configs, JSON, checks, ranks, documentation
// and tests iterate over them, so a new option or column is a member and a line in its list here.
//
// Each visit_fields() calls visit(field, members...) for every member of a structure (FieldsOf), or for every
// tensor of a task (TensorsOf):
//
//     PolicyLoss task;
//     visit_fields(FieldsOf<PolicyLoss>(), [](const Field& field, auto& member) { ... }, task);
//
// Several structures with members of these names may be visited together: visit(field, member, member of the
// second, ...). It does not compile if one of them lacks a member. The options of tokens are a member `token`
// of the tasks. The lists of results leave out the plan.
#pragma once

#include <type_traits>

#include "core/field.h"
#include "logitless/context.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/environment.h"
#include "logitless/gradients.h"
#include "logitless/id_sets.h"
#include "logitless/plan.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
#include "logitless/token_stats.h"

namespace logitless {

inline constexpr Interval kTopCount = {.text = "an integer from 0 to 256", .low = 0, .high = kMostTopK};

template <class Visit, class... S>
void visit_fields(FieldsOf<BackwardOptions>, const Visit& visit, S&&... s) {
  visit(Field("mode",
              "exact: from all vocabulary entries; sampled: from a random part, unbiased; certified: from all but the "
              "least likely, with an error bound"),
        s.mode...);
  visit(Field("noise", kShareBelowOne,
              "sampled: the expected relative error, from which θ is derived; 0: exact; not supported with a cut "
              "vocabulary or a LoRA on the head"),
        s.noise...);
  visit(Field("theta", kThreshold,
              "sampled: the threshold θ itself, in units of the rows' mean gradient factor; 0: derived from noise"),
        s.theta...);
  visit(Field("tolerance", kShareBelowOne, "certified: the probability that may be dropped from a row"),
        s.tolerance...);
  visit(Field("seed", "sampled: the random seed; use another one for each step; PyTorch's functions draw it"),
        s.seed...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<TokenOptions>, const Visit& visit, S&&... s) {
  visit(Field("ignore_index", "rows with this target are ignored; policy losses have a mask instead"),
        s.ignore_index...);
  visit(Field("shift", kPositions, "position t predicts target t + shift of the same sequence; 1 for a language model"),
        s.shift...);
  visit(Field("temperature", kPositive, "divides the capped logits"), s.temperature...);
  visit(Field("temperatures", kPositive, "one per token, in place of temperature", Role{"[N]", only(DType::kFloat64)}),
        s.temperatures...);
  visit(Field("temperature_meaning", "whether the temperature divides the logits or only the log-probability"),
        s.temperature_meaning...);
  visit(Field("round_logits_to", "rounds raw logits to this type, as in a trainer that stores its logits in it"),
        s.round_logits_to...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<StatsRequest>, const Visit& visit, S&&... s) {
  visit(Field("entropy", "the entropy of the token's distribution, in nats"), s.entropy...);
  visit(Field("cross", "Σ_v q_v log p_v"), s.cross...);
  visit(Field("argmax", "the most likely id"), s.argmax...);
  visit(Field("rank", "the rank of the target among the logits; costs a second pass over them"), s.rank...);
  visit(Field("top_k", kTopCount, "the ids and log-probabilities of the k largest logits; 0 for none"), s.top_k...);
  visit(
      Field("cross_weights", kNotNegative, "the q of cross; empty: 1/V each", Role{"[V]", only(DType::kFloat32), 1, 1}),
      s.cross_weights...);
  visit(Field("outside", "log(1 − p) of the target, computed from all other entries"), s.outside...);
  visit(Field("square_sum", "Σ p², the probability that two draws are the same token"), s.square_sum...);
  visit(Field("draws", kTopCount, "the number of ids to draw from each row's distribution; 0 for none"), s.draws...);
  visit(Field("draw_seed", "draws: the random seed; use another one for each call and each rank of a batch"),
        s.draw_seed...);
  visit(Field("draw_top_k", kTopCount, "draws: only from the k largest logits; 0: from all ids"), s.draw_top_k...);
  visit(Field("draw_top_p", kPositiveShare,
              "draws: only from the most likely of the draw_top_k ids that together have this share of their "
              "probability; below 1 it needs draw_top_k"),
        s.draw_top_p...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit(Field("reduction", "how per-token losses are reduced"), s.reduction...);
  visit(Field("mean_over", "what a mean divides by; token_weights: their sum"), s.mean_over...);
  visit(Field("label_smoothing", kShare, "ε of PyTorch's label smoothing"), s.label_smoothing...);
  visit(Field("z_loss", kNotNegative, "λ of λ · lse², added to each token's loss"), s.z_loss...);
  visit(Field("dft", "DFT: multiplies each token's loss by its target's probability (detached)"), s.dft...);
  visit(Field("class_weights", kNotNegative, "as in PyTorch; empty: all 1", Role{"[V]", only(DType::kFloat32), 1, 1}),
        s.class_weights...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("num_items_in_batch", kPositive,
              "the divisor of the mean, e.g. the tokens of all micro-batches; unset: as mean_over says; only with "
              "reduction mean"),
        s.num_items_in_batch...);
  visit(Field("want_accuracy", "fills metrics.accuracy and per_token_argmax"), s.want_accuracy...);
  visit(Field("want_entropy", "fills metrics.mean_entropy"), s.want_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type", "the per-token loss, which also sets the default aggregation and trust region"),
        s.loss_type...);
  visit(Field("token"), s.token...);
  visit(Field("importance_sampling_level", "one ratio per token, or one per sequence (GSPO)"),
        s.importance_sampling_level...);
  visit(Field("epsilon_low", kNotNegative,
              "ratios are clipped below at 1 − ε; at most 1, except for gmpo; unset: 0.2 (gmpo: 0.4; cispo, dppo: no "
              "bound)"),
        s.epsilon_low...);
  visit(Field("epsilon_high", kNotNegative,
              "ratios are clipped above at 1 + ε; unset: 0.3 (gmpo: 0.4); for cispo and dppo the bound itself, unset: "
              "5 and 3"),
        s.epsilon_high...);
  visit(Field("delta", kPositive, "two-sided clipping: the upper bound of the ratio for negative advantages"),
        s.delta...);
  visit(Field("log_ratio_clamp", kLogRatio, "clamps log ratios to ± this; none: 300"), s.log_ratio_clamp...);
  visit(Field("beta", kNotNegative, "the weight of the KL penalty; needs ref_logps"), s.beta...);
  visit(Field("kl_estimator", "the estimator of the KL from one sample; needs beta"), s.kl_estimator...);
  visit(Field("use_bias_correction_kl", "multiplies the KL by the importance ratio (DeepSeek-V3.2); needs beta"),
        s.use_bias_correction_kl...);
  visit(Field("entropy_bonus", "the weight of the mean entropy, which is subtracted from the loss"),
        s.entropy_bonus...);
  visit(Field("top_entropy_quantile", kPositiveShare,
              "the share of tokens, those with the highest entropies, that keep their loss"),
        s.top_entropy_quantile...);
  visit(Field("off_policy_mask_threshold",
              "drops sequences with a negative advantage whose mean log-probability has fallen by more than this"),
        s.off_policy_mask_threshold...);
  visit(Field("sampler_correction", "how exp(old − sampling) weights or masks a token's loss; needs sampling_logps"),
        s.sampler_correction...);
  visit(Field("sampler_clip_min", kNotNegative, "the lower bound of the correction; needs sampler_correction"),
        s.sampler_clip_min...);
  visit(Field("sampler_clip_max", kPositive,
              "the upper bound of the correction; any other than 3 needs sampler_correction"),
        s.sampler_clip_max...);
  visit(Field("teacher_weight", "the weight of the teacher's log ratio in a token's advantage; needs teacher_logps"),
        s.teacher_weight...);
  visit(Field("teacher_against", "the log-probability that the teacher's is compared with; needs teacher_weight"),
        s.teacher_against...);
  visit(
      Field("teacher_discount", kShare, "the discount per position of later tokens' log ratios; needs teacher_weight"),
      s.teacher_discount...);
  visit(Field("trust_region",
              "which tokens keep their loss, by how far the policy has moved from old_logps; default: tv for dppo, "
              "none for all others"),
        s.trust_region...);
  visit(Field("trust_region_low", kNotNegative, "the trust region's lower bound; unset: 0.2 (tv_both: 0.1)"),
        s.trust_region_low...);
  visit(Field("trust_region_high", kNotNegative, "the trust region's upper bound; unset: 0.2 (tv_both: 0.1)"),
        s.trust_region_high...);
  visit(Field("m2_threshold", kPositive,
              "M2PO: drops the tokens with the largest (old − sampling)² until the mean of the rest is below this"),
        s.m2_threshold...);
  visit(Field("sampler_penalty", kNotNegative, "the weight of (logp − sampling)²"), s.sampler_penalty...);
  visit(Field("positive_nll_weight", kNotNegative,
              "the weight of the negative log-likelihood of sequences with a score above 0; needs scores"),
        s.positive_nll_weight...);
  visit(Field("aggregation", "how per-token losses become one number; default: as the loss type does"),
        s.aggregation...);
  visit(Field("num_items_in_batch", kPositive, "the divisor of token_mean; unset: the number of tokens"),
        s.num_items_in_batch...);
  visit(Field("max_completion_length", kCount, "the divisor of seq_mean_token_sum_norm (dr_grpo), which requires it"),
        s.max_completion_length...);
  visit(Field("num_sequences", kPositive, "the divisor of a mean over sequences; unset: their number"),
        s.num_sequences...);
  visit(Field("count_empty_sequences", "whether a mean over sequences counts sequences whose tokens are all masked"),
        s.count_empty_sequences...);
  visit(Field("sapo_temperature_pos", kPositive, "sapo: the temperature where the advantage is positive"),
        s.sapo_temperature_pos...);
  visit(Field("sapo_temperature_neg", kPositive, "sapo: the temperature where the advantage is negative"),
        s.sapo_temperature_neg...);
  visit(Field("vespo_k_pos", "vespo: k where the advantage is not negative"), s.vespo_k_pos...);
  visit(Field("vespo_lambda_pos", "vespo: λ where the advantage is not negative"), s.vespo_lambda_pos...);
  visit(Field("vespo_k_neg", "vespo: k where the advantage is negative"), s.vespo_k_neg...);
  visit(Field("vespo_lambda_neg", "vespo: λ where the advantage is negative"), s.vespo_lambda_neg...);
  visit(Field("dro_tau", kNotNegative, "dro: twice the weight of (logp − old)²"), s.dro_tau...);
  visit(Field("topr_weight_pos", kNotNegative, "topr: the weight of sequences with a score above 0"),
        s.topr_weight_pos...);
  visit(Field("topr_weight_neg", kNotNegative, "topr: the weight of all other sequences"), s.topr_weight_neg...);
  visit(Field("cov_share", kPositiveShare, "clip_cov, kl_cov: the share of tokens to choose"), s.cov_share...);
  visit(Field("cov_low", "clip_cov chooses among tokens with a covariance above this"), s.cov_low...);
  visit(Field("cov_high", "clip_cov chooses among tokens with a covariance below this"), s.cov_high...);
  visit(Field("cov_seed", "the seed of clip_cov's choice"), s.cov_seed...);
  visit(Field("cov_kl_weight", kNotNegative, "kl_cov: the weight of abs(logp − old) at the chosen tokens"),
        s.cov_kl_weight...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("want_entropy", "fills metrics.mean_entropy even if nothing else needs the entropy"), s.want_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<Distillation>, const Visit& visit, S&&... s) {
  visit(Field("loss_type", "the divergence between student and teacher"), s.loss_type...);
  visit(Field("token"), s.token...);
  visit(Field("teacher_temperature", kPositive,
              "divides the teacher's capped logits; unset: the student's temperature, token by token"),
        s.teacher_temperature...);
  visit(Field("teacher_round_logits_to", "rounds the teacher's raw logits to this type"), s.teacher_round_logits_to...);
  visit(Field("beta", kShare, "β of jsd, the teacher's weight in the mixture; 0 is forward_kl, 1 is reverse_kl"),
        s.beta...);
  visit(Field("skew", kShare, "λ of skew_kl and skew_reverse_kl: the weight of the KL's first argument in the mixture"),
        s.skew...);
  visit(Field("forward_weight", kShare, "w of mixed_kl, the weight of the forward KL"), s.forward_weight...);
  visit(Field("acceptance_decay", kNotNegative,
              "η of lk_hybrid: how fast the KL's weight falls as student and teacher overlap more"),
        s.acceptance_decay...);
  visit(Field("divergence_weight", kNotNegative, "the weight of the divergence"), s.divergence_weight...);
  visit(Field("temperature_squared", "multiplies the divergence by the student's temperature squared"),
        s.temperature_squared...);
  visit(Field("hard_weight", kNotNegative, "the weight of the cross-entropy against the targets"), s.hard_weight...);
  visit(Field("hard_temperature", kPositive, "the temperature of the cross-entropy; needs hard_weight"),
        s.hard_temperature...);
  visit(Field("reduction", "how per-token losses are reduced"), s.reduction...);
  visit(Field("mean_over", "what a mean divides by; token_weights: their sum"), s.mean_over...);
  visit(Field("num_items_in_batch", kPositive,
              "the divisor of the mean; unset: as mean_over says; only with reduction mean"),
        s.num_items_in_batch...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("want_entropy", "fills the entropies of student and teacher"), s.want_entropy...);
  visit(Field("want_agreement", "fills metrics.agreement and per_token_agreement"), s.want_agreement...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type", "the losses to sum, at least one"), s.loss_type...);
  visit(Field("loss_weights", "one weight per loss type; empty: all 1"), s.loss_weights...);
  visit(Field("beta", kPositive, "the scale of log ratios"), s.beta...);
  visit(Field("label_smoothing", kShareBelowOne,
              "the share of flipped labels, for exo_pair, robust, aot, aot_unpaired, simpo and cpo"),
        s.label_smoothing...);
  visit(
      Field("average_log_prob",
            "uses a sequence's mean log-probability instead of its sum; ref_logps_are still describes the reference's"),
      s.average_log_prob...);
  visit(Field("ref_logps_are", "whether per-sequence reference log-probabilities are sums or averages"),
        s.ref_logps_are...);
  visit(Field("discopop_tau", kPositive, "τ of discopop"), s.discopop_tau...);
  visit(Field("simpo_gamma", "γ of simpo"), s.simpo_gamma...);
  visit(Field("f_divergence", "f-DPO: the function applied to a pair's log ratios"), s.f_divergence...);
  visit(Field("f_alpha", "α of alpha_divergence"), s.f_alpha...);
  visit(Field("ld_alpha", kShare, "LD-DPO: the weight of tokens beyond the length of the pair's shorter answer"),
        s.ld_alpha...);
  visit(Field("use_weighting", "WPO: weights a pair's loss by the policy's probability of both answers"),
        s.use_weighting...);
  visit(Field("reward_alpha", "AlphaPO: α of simpo's and cpo's reward"), s.reward_alpha...);
  visit(Field("nll_weight", kNotNegative,
              "the weight of the chosen sequences' negative log-likelihood; unset: 1 with orpo or cpo, else 0"),
        s.nll_weight...);
  visit(Field("token"), s.token...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("want_entropy", "fills metrics.mean_entropy"), s.want_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<KtoLoss>, const Visit& visit, S&&... s) {
  visit(Field("loss_type", "the loss of each sequence"), s.loss_type...);
  visit(Field("beta", kPositive, "the scale of log ratios"), s.beta...);
  visit(Field("desirable_weight", kNotNegative, "the weight of desirable sequences"), s.desirable_weight...);
  visit(Field("undesirable_weight", kNotNegative, "the weight of undesirable sequences"), s.undesirable_weight...);
  visit(Field("bco_delta", "bco: the baseline of the rewards, the mean of past ones"), s.bco_delta...);
  visit(
      Field("average_log_prob",
            "uses a sequence's mean log-probability instead of its sum; ref_logps_are still describes the reference's"),
      s.average_log_prob...);
  visit(Field("ref_logps_are", "whether per-sequence reference log-probabilities are sums or averages"),
        s.ref_logps_are...);
  visit(Field("token"), s.token...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("want_entropy", "fills metrics.mean_entropy"), s.want_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<IdLogps>, const Visit& visit, S&&... s) {
  visit(Field("normalise_over", "the set over which a row's probabilities sum to 1"), s.normalise_over...);
  visit(Field("token"), s.token...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit(Field("reduction", "how per-token losses are reduced"), s.reduction...);
  visit(Field("mean_over", "what a mean divides by; token_weights: their sum"), s.mean_over...);
  visit(Field("subtract_entropy", "returns KL(q, p) instead of the cross-entropy; the gradients are the same"),
        s.subtract_entropy...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("num_items_in_batch", kPositive,
              "the divisor of the mean, e.g. the tokens of all micro-batches; unset: as mean_over says; only with "
              "reduction mean"),
        s.num_items_in_batch...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillation>, const Visit& visit, S&&... s) {
  visit(Field("loss_type", "the divergence between student and teacher; acceptance and lk_hybrid are refused"),
        s.loss_type...);
  visit(Field("outside", "how the probability outside a row's set is treated"), s.outside...);
  visit(Field("token"), s.token...);
  visit(Field("beta", kShare, "β of jsd; 0 is forward_kl, 1 is reverse_kl"), s.beta...);
  visit(Field("skew", kShare, "λ of skew_kl and skew_reverse_kl: the weight of the KL's first argument in the mixture"),
        s.skew...);
  visit(Field("forward_weight", kShare, "w of mixed_kl: the weight of the forward KL"), s.forward_weight...);
  visit(Field("divergence_weight", kNotNegative, "the weight of the divergence"), s.divergence_weight...);
  visit(Field("temperature_squared", "multiplies the divergence by the student's temperature squared"),
        s.temperature_squared...);
  visit(Field("hard_weight", kNotNegative, "the weight of the cross-entropy against the targets, at temperature 1"),
        s.hard_weight...);
  visit(Field("reduction", "how per-token losses are reduced"), s.reduction...);
  visit(Field("mean_over", "what a mean divides by; token_weights: their sum"), s.mean_over...);
  visit(Field("num_items_in_batch", kPositive,
              "the divisor of the mean; unset: as mean_over says; only with reduction mean"),
        s.num_items_in_batch...);
  visit(Field("loss_scale", "multiplies loss and gradients"), s.loss_scale...);
  visit(Field("tail_floor", kShareBelowOne,
              "outside tail: the lower bound of the teacher's mass outside a set (TRL: 1e-7)"),
        s.tail_floor...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStatistics>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
  visit_fields(FieldsOf<StatsRequest>(), visit, s.request...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<CustomLoss>, const Visit& visit, S&&... s) {
  visit(Field("token"), s.token...);
}

/// Includes Ranks, except for the communicators, which each surface creates itself.
template <class Visit, class... S>
void visit_fields(FieldsOf<ContextOptions>, const Visit& visit, S&&... s) {
  visit(Field("threads", "size of the OpenMP team; 0 follows OMP_NUM_THREADS"), s.threads...);
  visit(Field("workspace_bytes", "the upper bound of a call's workspace"), s.workspace_bytes...);
  visit(Field("workspace", "memory that calls reuse; by default each call allocates its own"), s.workspace...);
  visit(Field("plan", "how a call runs: which logits it stores, and which it recomputes; auto: the fastest that fits"),
        s.plan...);
  visit(Field("row_tile", "rows of a logits tile; 0: chosen from the shape"), s.row_tile...);
  visit(Field("vocab_tile", "columns of a logits tile; 0: chosen from the shape"), s.vocab_tile...);
  visit(Field("row_block", "rows of finished logits that a thread processes at once; 0: chosen from the shape"),
        s.row_block...);
  visit(Field("gemm_backend", "the library of matrix products: auto, or one that this build has"), s.gemm_backend...);
  visit(Field("gradient_precision", "how dL/dlogits is rounded in bfloat16 products"), s.gradient_precision...);
  visit(Field("simd_target", "auto, plain, or an instruction set of this CPU, such as AVX2"), s.simd_target...);
  visit(Field("slices", "sizes of the slices that this rank's vocabulary entries are cut into"), s.ranks.slices...);
  visit(Field("own_d_hidden", "d_hidden is summed over this rank's vocabulary entries only"), s.ranks.own_d_hidden...);
  visit(Field("sum_d_weight", "sums the head's gradients over the data ranks"), s.ranks.sum_d_weight...);
}

inline constexpr Role kHiddenRole = {"[N, H] or [B, T, H]", kFloats, 2, 3, Order::kRows};
inline constexpr Role kLogitsRole = {"[N, V] or [B, T, V]", kFloats, 2, 3, Order::kRows};
inline constexpr Role kWeightRole = {"[V, H], or of uint8 [V, bytes of a row] if packed", kFloats | only(DType::kUInt8),
                                     2, 2, Order::kEither};
inline constexpr Role kWeightGradientRole = {"[V, H]", kFloats, 2, 2, Order::kEither};
inline constexpr Role kScalesRole = {"[V, G]", only(DType::kFloat32)};
inline constexpr Role kEntriesRole = {"[V]", kFloats, 1, 1};
inline constexpr Role kTargetsRole = token_ids("[N] or [B, T]");
inline constexpr Field kTokenWeights = {"token_weights", kNotNegative, "multiplies each token's loss",
                                        numbers("[N] or [B, T]")};
inline constexpr Role kProbabilitiesRole = {"[N, V]", only(DType::kFloat32) | only(DType::kFloat64), 2, 2,
                                            Order::kRows};

/// The tensors of Logits, and the options of its head.
template <class Visit, class... S>
void visit_fields(FieldsOf<Logits>, const Visit& visit, S&&... s) {
  visit(Field("hidden", "hidden states", kHiddenRole), s.hidden...);
  visit(Field("offsets", "packed sequences: sequence s is hidden[offsets[s] : offsets[s + 1]]", places("[B + 1]")),
        s.offsets...);
  visit(Field("weight", "the LM head", kWeightRole), s.head.weight...);
  visit(Field("bias", "added to the logits", kEntriesRole), s.head.bias...);
  visit(Field("softcap", "c of c · tanh(logits / c); 0: none"), s.head.softcap...);
  visit(Field("packing", "how weight is packed"), s.head.packing...);
  visit(Field("scales", "the scales of a weight packed as int8 or nf4", kScalesRole), s.head.scales...);
  visit(Field("group", kPositions, "numbers of a row that share a scale; 0: all"), s.head.group...);
  visit(Field("vocab_ids", "the rows of weight that form the vocabulary; all by default", places("[K]")),
        s.head.vocab_ids...);
  visit(Field("lora_a", "a LoRA's first matrix", rows_of_numbers("[r, H]")), s.head.lora.a...);
  visit(Field("lora_b", "a LoRA's second matrix", rows_of_numbers("[V, r]")), s.head.lora.b...);
  visit(Field("lora_scale", "multiplies the LoRA's term of the logits"), s.head.lora.scale...);
  visit(Field("lora_states", "hidden · lora_aᵀ, in place of lora_a", rows_of_numbers("[N, r]")), s.head.lora.states...);
  visit(Field("logits", "finished logits, in place of hidden and weight", kLogitsRole), s.finished...);
}

/// The tensors of Gradients, and their modes.
template <class Visit, class... S>
void visit_fields(FieldsOf<Gradients>, const Visit& visit, S&&... s) {
  visit(Field("d_hidden", "receives the gradient of hidden", kHiddenRole), s.d_hidden...);
  visit(Field("d_weight", "receives the gradient of weight, stored as weight is", kWeightGradientRole), s.d_weight...);
  visit(Field("d_bias", "receives the gradient of bias", kEntriesRole), s.d_bias...);
  visit(Field("d_lora_a", "receives the gradient of lora_a", rows_of_numbers("[r, H]")), s.d_lora_a...);
  visit(Field("d_lora_b", "receives the gradient of lora_b", rows_of_numbers("[V, r]")), s.d_lora_b...);
  visit(Field("d_lora_states", "receives the gradient of lora_states", rows_of_numbers("[N, r]")), s.d_lora_states...);
  visit(Field("d_logits", "receives the gradient of logits", kLogitsRole), s.d_logits...);
  visit(Field("d_hidden_mode", "whether the gradient overwrites the output or is added to it"), s.d_hidden_mode...);
  visit(Field("d_weight_mode", "whether the gradient overwrites the output or is added to it"), s.d_weight_mode...);
  visit(Field("d_bias_mode", "whether the gradient overwrites the output or is added to it"), s.d_bias_mode...);
  visit(Field("d_lora_mode", "whether the gradient overwrites the output or is added to it"), s.d_lora_mode...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<CrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
  visit(kTokenWeights, s.token_weights...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<PolicyLoss>, const Visit& visit, S&&... s) {
  visit(Field("chosen_ids", "the sampled token ids", kTargetsRole), s.chosen_ids...);
  visit(Field("advantages", "one per sequence or per token", numbers("[B] or [N]")), s.advantages...);
  visit(Field("old_logps", "log-probabilities before the update; without them the ratio is 1", numbers("[N]")),
        s.old_logps...);
  visit(Field("ref_logps", "the reference's log-probabilities; needs beta", numbers("[N]")), s.ref_logps...);
  visit(Field("sampling_logps", "the sampler's log-probabilities; NaN where unknown", numbers("[N]")),
        s.sampling_logps...);
  visit(Field("teacher_logps", "the teacher's log-probabilities; needs teacher_weight", numbers("[N]")),
        s.teacher_logps...);
  visit(Field("scores", "above 0 for a good sequence; for topr and positive_nll_weight", numbers("[B]")), s.scores...);
  visit(Field("mask", "0 excludes a token", flags("[N] or [B, T]")), s.mask...);
  visit(Field("advantages_per", "whether advantages are per sequence or per token"), s.advantages_per...);
  visit(Field("kept", "token ids that the sampler kept"), s.kept...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<PreferenceLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
  visit(Field("ref_logps", "the reference's log-probabilities, per sequence or per token", numbers("[B] or [N]")),
        s.ref_logps...);
  visit(Field("ref_logps_per", "whether the reference's log-probabilities are per sequence or per token"),
        s.ref_logps_per...);
  visit(Field("reference"), s.reference...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<KtoLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
  visit(Field("labels", "1: desirable, 0: undesirable", flags("[B]")), s.labels...);
  visit(Field("ref_logps", "the reference's log-probabilities, per sequence or per token", numbers("[B] or [N]")),
        s.ref_logps...);
  visit(Field("ref_logps_per", "whether the reference's log-probabilities are per sequence or per token"),
        s.ref_logps_per...);
  visit(Field("reference"), s.reference...);
  visit(Field("kl_logps", "kto: log-probabilities of mismatched answers", numbers("[B or other]")), s.kl_logps...);
  visit(Field("kl_ref_logps", "kto: the reference's log-probabilities of mismatched answers", numbers("as kl_logps")),
        s.kl_ref_logps...);
  visit(Field("sequence_weights", "multiplies each sequence's loss", numbers("[B]")), s.sequence_weights...);
  visit(Field("reward_targets", "a2po: reward − value, the target of beta times the log ratio", numbers("[B]")),
        s.reward_targets...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<SoftCrossEntropy>, const Visit& visit, S&&... s) {
  visit(Field("targets"), s.targets...);
  visit(kTokenWeights, s.token_weights...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<Distillation>, const Visit& visit, S&&... s) {
  visit(Field("teacher"), s.teacher...);
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
  visit(kTokenWeights, s.token_weights...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<SetDistillation>, const Visit& visit, S&&... s) {
  visit(Field("teacher"), s.teacher...);
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
  visit(kTokenWeights, s.token_weights...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<IdLogps>, const Visit& visit, S&&... s) {
  visit(Field("sets", "token ids of each row"), s.sets...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<TokenStatistics>, const Visit& visit, S&&... s) {
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
}

template <class Visit, class... S>
void visit_fields(TensorsOf<CustomLoss>, const Visit& visit, S&&... s) {
  visit(Field("targets", "token ids, one per row of hidden", kTargetsRole), s.targets...);
}

/// `ids` has an empty meaning, which the field of the sets replaces (Field::or_meaning()).
template <class Visit, class... S>
void visit_fields(FieldsOf<IdSets>, const Visit& visit, S&&... s) {
  visit(Field("ids", "", token_ids("[N, K], or [E] with offsets")), s.ids...);
  visit(Field("offsets", "row r has ids[offsets[r] : offsets[r + 1]]", places("[N + 1]")), s.offsets...);
  visit(Field("counts", "how many of its K ids each row uses", places("[N]")), s.counts...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SoftTargets>, const Visit& visit, S&&... s) {
  visit(Field("sets", "token ids with a target weight"), s.sets...);
  visit(Field("weights", "the probabilities of these ids; a repeated id's weights add up", numbers("as ids")),
        s.weights...);
  visit(Field("rows", "target probabilities of all ids, in place of ids and weights; float64 if hidden is",
              kProbabilitiesRole),
        s.rows...);
  visit(Field("mask", "0 excludes a token", flags("[N] or [B, T]")), s.mask...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SetTeacher>, const Visit& visit, S&&... s) {
  visit(Field("sets", "token ids whose teacher log-probability is known"), s.sets...);
  visit(Field("logps", "the teacher's log-probabilities", numbers("as ids")), s.logps...);
  visit(Field("outside_logps", "the teacher's log-probability of all other ids", numbers("[N]")), s.outside_logps...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropyResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("per_token_loss", "before reduction; 0 for ignored rows", "[N]"), s.per_token_loss...);
  visit(Field("per_token_logps", "log-probability of the target; 0 for ignored rows", "[N]"), s.per_token_logps...);
  visit(Field("per_token_lse", "log-sum-exp of the final logits", "[N]"), s.per_token_lse...);
  visit(Field("per_token_argmax", "the most likely id; with want_accuracy", "[N]", kOnRequest), s.per_token_argmax...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropyResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("per_token_loss", "before reduction; 0 for ignored rows", "[N]"), s.per_token_loss...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("per_token_loss", "before aggregation and loss_scale; 0 for ignored tokens", "[N]"), s.per_token_loss...);
  visit(Field("per_token_logps", "log-probability of the target; 0 for ignored rows", "[N]"), s.per_token_logps...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("sequence_logps", "sums of log-probabilities, or averages", "[2 B]"), s.sequence_logps...);
  visit(Field("per_token_logps", "log-probability of the target; 0 for ignored rows", "[N]"), s.per_token_logps...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<KtoResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("sequence_losses", "weighted, without loss_scale", "[B]"), s.sequence_losses...);
  visit(Field("sequence_logps", "sums of log-probabilities, or averages", "[B]"), s.sequence_logps...);
  visit(Field("per_token_logps", "log-probability of the target; 0 for ignored rows", "[N]"), s.per_token_logps...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<DistillationResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("per_token_loss", "before reduction; 0 for ignored rows", "[N]"), s.per_token_loss...);
  visit(Field("per_token_divergence", "without weight, T² and loss_scale", "[N]"), s.per_token_divergence...);
  visit(Field("per_token_acceptance", "Σ_v min(s_v, t_v) of student and teacher", "[N]"), s.per_token_acceptance...);
  visit(Field("per_token_logps", "log-probability of the target, at hard_temperature; with hard_weight", "[N]"),
        s.per_token_logps...);
  visit(Field("per_token_agreement", "1 where both have the same argmax; with want_agreement", "[N]", kOnRequest),
        s.per_token_agreement...);
  visit(Field("per_token_entropy", "of the student; with want_entropy", "[N]", kOnRequest), s.per_token_entropy...);
  visit(Field("per_token_teacher_entropy", "of the teacher; with want_entropy", "[N]", kOnRequest),
        s.per_token_teacher_entropy...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillationResult>, const Visit& visit, S&&... s) {
  visit(Field("loss", "reduced as the options say"), s.loss...);
  visit(Field("per_token_loss", "before reduction; 0 for ignored rows", "[N]"), s.per_token_loss...);
  visit(Field("per_token_divergence", "without weight, T² and loss_scale", "[N]"), s.per_token_divergence...);
  visit(Field("metrics"), s.metrics...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<IdLogpsResult>, const Visit& visit, S&&... s) {
  visit(Field("logps", "log-probabilities of the ids; 0 after a row's count", "as ids"), s.logps...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStatisticsResult>, const Visit& visit, S&&... s) {
  visit(Field("stats"), s.stats...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<Plan>, const Visit& visit, S&&... s) {
  visit(Field("kind", "the plan that runs"), s.kind...);
  visit(Field("tokens", "N, including ignored rows"), s.tokens...);
  visit(Field("active_rows", "rows that are not ignored"), s.active_rows...);
  visit(Field("hidden_size", "H"), s.hidden_size...);
  visit(Field("vocab_size", "V"), s.vocab_size...);
  visit(Field("row_tile", "maximum rows of a logits tile; 0 for finished logits"), s.row_tile...);
  visit(Field("row_block", "rows of finished logits that a thread processes together"), s.row_block...);
  visit(Field("vocab_tile", "columns of a logits tile"), s.vocab_tile...);
  visit(Field("hidden_block", "columns of hidden that one gradient GEMM writes"), s.hidden_block...);
  visit(Field("chunk_rows", "maximum rows whose logits are in memory together"), s.chunk_rows...);
  visit(Field("gemm_library", "the library that computes the logits"), s.gemm_library...);
  visit(Field("gradient_dtype", "the type of dL/dlogits in the gradient products"), s.gradient_dtype...);
  visit(Field("gradient_terms", "terms of gradient_dtype per element of dL/dlogits"), s.gradient_terms...);
  visit(Field("threads", "threads that can work with the tiles that fit"), s.threads...);
  visit(Field("tiles_alive", "logits tiles in memory at once"), s.tiles_alive...);
  visit(Field("stored_entries", "vocabulary entries whose logits are stored until their gradients are computed"),
        s.stored_entries...);
  visit(Field("workspace_bytes", "the most memory that the call allocates, without per-token vectors"),
        s.workspace_bytes...);
  visit(Field("packed_bytes", "the part of workspace_bytes for packed hidden states"), s.packed_bytes...);
  visit(Field("least_workspace_bytes", "the smallest budget that the call accepts; filled only by plan()"),
        s.least_workspace_bytes...);
  visit(Field("kept_share", "share of gradients that a sampled or certified backward computed"), s.kept_share...);
  visit(Field("noise_estimate", "expected error of a sampled backward"), s.noise_estimate...);
  visit(Field("d_hidden_bound", "certified: upper bound of the error of d_hidden (Frobenius)"), s.d_hidden_bound...);
  visit(Field("d_weight_bound", "certified: upper bound of the error of d_weight (Frobenius)"), s.d_weight_bound...);
  visit(Field("blas_bytes", "estimate of the BLAS's own packing buffers"), s.blas_bytes...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<TokenStats>, const Visit& visit, S&&... s) {
  visit(Field("logp", "log-probability of the target, in nats", "[N]"), s.logp...);
  visit(Field("lse", "log-sum-exp of the final logits", "[N]"), s.lse...);
  visit(Field("entropy", "in nats", "[N]"), s.entropy...);
  visit(Field("cross", "Σ_v q_v log p_v", "[N]"), s.cross...);
  visit(Field("argmax", "the most likely id", "[N]"), s.argmax...);
  visit(Field("rank", "rank of the target among the logits, from 1", "[N]"), s.rank...);
  visit(Field("outside", "log(1 − p) of the target", "[N]"), s.outside...);
  visit(Field("outside_max", "the largest capped logit except the target's", "[N]"), s.outside_max...);
  visit(Field("max_logit", "the largest capped logit, before the temperature", "[N]"), s.max_logit...);
  visit(Field("log_sum", "lse minus the largest final logit", "[N]"), s.log_sum...);
  visit(Field("top_ids", "ids of the largest logits, in descending order", "[N, K]"), s.top_ids...);
  visit(Field("top_logps", "log-probabilities of top_ids", "[N, K]"), s.top_logps...);
  visit(Field("square_sum", "Σ p², the probability that two draws are the same token", "[N]"), s.square_sum...);
  visit(Field("drawn_ids", "ids drawn from the row's distribution", "[N, D]"), s.drawn_ids...);
  visit(Field("drawn_logps", "log-probabilities of drawn_ids among all ids", "[N, D]"), s.drawn_logps...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<TokenGrads>, const Visit& visit, S&&... s) {
  visit(Field("logp", "∂L/∂logp", numbers("[N]")), s.logp...);
  visit(Field("lse", "∂L/∂lse", numbers("[N]")), s.lse...);
  visit(Field("entropy", "∂L/∂entropy", numbers("[N]")), s.entropy...);
  visit(Field("cross", "∂L/∂cross", numbers("[N]")), s.cross...);
  visit(Field("outside", "∂L/∂outside", numbers("[N]")), s.outside...);
  visit(Field("square_sum", "∂L/∂square_sum", numbers("[N]")), s.square_sum...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<CrossEntropyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens", "active tokens"), s.tokens...);
  visit(Field("mean_nll", "mean of −logp, without smoothing, weights, z-loss, dft and loss_scale"), s.mean_nll...);
  visit(Field("perplexity", "exp(mean_nll)"), s.perplexity...);
  visit(Field("z_loss", "the z-loss part of the loss"), s.z_loss...);
  visit(Field("accuracy", "share of tokens whose argmax is the target"), s.accuracy...);
  visit(Field("mean_entropy", "in nats"), s.mean_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SoftCrossEntropyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens", "active tokens"), s.tokens...);
  visit(Field("mean_cross_entropy", "in nats"), s.mean_cross_entropy...);
  visit(Field("mean_target_entropy", "with subtract_entropy, in nats"), s.mean_target_entropy...);
  visit(Field("mean_kl", "KL(q, p), with subtract_entropy, in nats"), s.mean_kl...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<SetDistillationMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens", "active tokens"), s.tokens...);
  visit(Field("mean_divergence", "without weight, T² and loss_scale"), s.mean_divergence...);
  visit(Field("mean_teacher_mass", "the teacher's probability of the set"), s.mean_teacher_mass...);
  visit(Field("mean_student_mass", "the student's probability of the set"), s.mean_student_mass...);
  visit(Field("mean_nll", "mean of −logp of the targets, with hard_weight"), s.mean_nll...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PolicyMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens", "active tokens"), s.tokens...);
  visit(Field("mean_ratio", "mean importance ratio"), s.mean_ratio...);
  visit(Field("clip_fraction_low", "share of tokens clipped at the lower bound"), s.clip_fraction_low...);
  visit(Field("clip_fraction_high", "share of tokens clipped at the upper bound"), s.clip_fraction_high...);
  visit(Field("clip_fraction", "share of tokens clipped at either bound"), s.clip_fraction...);
  visit(Field("mean_kl", "mean estimate of KL(policy, reference), with beta"), s.mean_kl...);
  visit(Field("mean_entropy", "in nats"), s.mean_entropy...);
  visit(Field("mean_logp", "in nats"), s.mean_logp...);
  visit(Field("mean_teacher_kl", "estimate of KL(policy, teacher), with a teacher, in nats"), s.mean_teacher_kl...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<DistillationMetrics>, const Visit& visit, S&&... s) {
  visit(Field("tokens", "active tokens"), s.tokens...);
  visit(Field("mean_divergence", "without weight, T² and loss_scale"), s.mean_divergence...);
  visit(Field("mean_acceptance", "share of tokens that speculative decoding accepts"), s.mean_acceptance...);
  visit(Field("mean_nll", "mean of −logp of the targets, with hard_weight"), s.mean_nll...);
  visit(Field("agreement", "share of tokens with the same argmax"), s.agreement...);
  visit(Field("mean_entropy", "of the student, in nats"), s.mean_entropy...);
  visit(Field("mean_teacher_entropy", "of the teacher, in nats"), s.mean_teacher_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<PreferenceMetrics>, const Visit& visit, S&&... s) {
  visit(Field("pairs", "active pairs"), s.pairs...);
  visit(Field("tokens", "tokens of these pairs"), s.tokens...);
  visit(Field("chosen_reward", "mean reward of the chosen sequences"), s.chosen_reward...);
  visit(Field("rejected_reward", "mean reward of the rejected sequences"), s.rejected_reward...);
  visit(Field("margin", "chosen minus rejected reward"), s.margin...);
  visit(Field("accuracy", "share of pairs with a positive margin"), s.accuracy...);
  visit(Field("chosen_logp", "mean log-probability of the chosen sequences"), s.chosen_logp...);
  visit(Field("rejected_logp", "mean log-probability of the rejected sequences"), s.rejected_logp...);
  visit(Field("nll", "mean of −logp of the chosen tokens"), s.nll...);
  visit(Field("mean_entropy", "in nats"), s.mean_entropy...);
}

template <class Visit, class... S>
void visit_fields(FieldsOf<KtoMetrics>, const Visit& visit, S&&... s) {
  visit(Field("desirable", "active desirable sequences"), s.desirable...);
  visit(Field("undesirable", "active undesirable sequences"), s.undesirable...);
  visit(Field("tokens", "tokens of these sequences"), s.tokens...);
  visit(Field("kl", "the baseline of the log ratios"), s.kl...);
  visit(Field("desirable_reward", "mean reward of desirable sequences"), s.desirable_reward...);
  visit(Field("undesirable_reward", "mean reward of undesirable sequences"), s.undesirable_reward...);
  visit(Field("margin", "desirable minus undesirable reward"), s.margin...);
  visit(Field("desirable_logp", "mean log-probability of desirable sequences"), s.desirable_logp...);
  visit(Field("undesirable_logp", "mean log-probability of undesirable sequences"), s.undesirable_logp...);
  visit(Field("mean_entropy", "in nats"), s.mean_entropy...);
}

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

/// Visits an options structure as one flat list that includes the options of its `token`.
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
