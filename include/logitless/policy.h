// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Policy-gradient losses of an LM head, fused: GRPO and its family, PPO, RLOO and REINFORCE.
/// docs/losses-policy.md has the formulas, sources, masks and ties.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/id_sets.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// The per-token loss and its default aggregation (docs/losses-policy.md, "Loss per token" and
/// "Aggregation").
enum class PolicyLossType {
  kGrpo,
  kBnpo,
  kDrGrpo,
  kDapo,
  kCispo,
  kSapo,
  kLuspo,
  kVespo,
  kReinforce,
  kRloo,
  kPpo,
  kImportanceSampling,
  kDppo,
  kGmpo,
  kDro,
  kTopr,
  kClipCov,
  kKlCov,
};

/// How the per-token losses become one number (docs/losses-policy.md, "Aggregation"). A mean over sequences
/// divides by their number: see count_empty_sequences and num_sequences.
enum class PolicyAggregation {
  kDefault,              ///< as in the loss type's paper or project
  kTokenMean,            ///< the sum, divided by num_items_in_batch or the number of tokens
  kTokenSum,             ///< the sum
  kSeqMeanTokenSum,      ///< the mean over sequences of their sums
  kSeqMeanTokenMean,     ///< the mean over sequences of their means
  kSeqMeanTokenSumNorm,  ///< the mean over sequences of their sums, divided by max_completion_length
};

/// Which tokens keep their loss, depending on how far the policy has moved from old_logps
/// (docs/losses-policy.md, "Factors"); p = e^logp, p_old = e^old.
enum class TrustRegion {
  kDefault,  ///< tv for dppo, none for the others
  kNone,     ///< all tokens
  kTv,       ///< p − p_old at most the upper bound if A > 0, at least minus the lower one otherwise (DPPO, TV)
  kTvBoth,   ///< p − p_old within both bounds (prime-rl's ipo)
  kKl,       ///< like kTv, with the KL of two outcomes: the token, and any other (DPPO, KL)
};

/// Estimators of KL(policy, reference) from one sample, with d = ref − logp (Schulman 2020).
enum class KlEstimator {
  kK1,      ///< −d
  kK2,      ///< d² / 2
  kK3,      ///< e^d − d − 1
  kAbs,     ///< |d|
  kK1Plus,  ///< the value of k1, the gradient of k2 (verl's "k1+")
  kK3Plus,  ///< the value of k3, the gradient of k2 (verl's "k3+")
};

/// Whether importance ratios are per token or per sequence.
enum class ImportanceLevel {
  kToken,     ///< one ratio per token
  kSequence,  ///< GSPO: the geometric mean of a sequence's token ratios
};

/// How r = exp(old − sampling) corrects a token's loss if the sampler differs from the trainer. The bounds
/// are sampler_clip_min and sampler_clip_max.
enum class SamplerCorrection {
  kNone,              ///< no correction
  kTokenTruncate,     ///< weight r, clamped to the bounds
  kTokenMask,         ///< weight r; 0 outside the bounds
  kSequenceTruncate,  ///< like kTokenTruncate, with the product of the sequence's r
  kSequenceMask,      ///< like kTokenMask, with the product of the sequence's r
  kGeometricMask,     ///< weight r per token; 0 if the geometric mean of its sequence's r is outside the bounds
};

/// The log-probability that the teacher's is compared with in the advantage.
enum class TeacherAgainst {
  kCurrent,   ///< the policy's own, without gradient (TRL, verl, prime-rl)
  kOld,       ///< old_logps (slime); on-policy, the policy's own
  kSampling,  ///< sampling_logps (tinker)
};

/// The names of PolicyLossType.
template <>
inline constexpr std::array kNamesOf<PolicyLossType> = {
    "grpo",  "bnpo",  "dr_grpo",   "dapo", "cispo",    "sapo",
    "luspo", "vespo", "reinforce", "rloo", "ppo",      "importance_sampling",
    "dppo",  "gmpo",  "dro",       "topr", "clip_cov", "kl_cov"};
/// The names of PolicyAggregation.
template <>
inline constexpr std::array kNamesOf<PolicyAggregation> = {
    "default", "token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"};
/// The names of TrustRegion.
template <>
inline constexpr std::array kNamesOf<TrustRegion> = {"default", "none", "tv", "tv_both", "kl"};
/// The names of KlEstimator.
template <>
inline constexpr std::array kNamesOf<KlEstimator> = {"k1", "k2", "k3", "abs", "k1_plus", "k3_plus"};
/// The names of ImportanceLevel.
template <>
inline constexpr std::array kNamesOf<ImportanceLevel> = {"token", "sequence"};
/// The names of SamplerCorrection.
template <>
inline constexpr std::array kNamesOf<SamplerCorrection> = {
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_mask"};
/// The names of TeacherAgainst.
template <>
inline constexpr std::array kNamesOf<TeacherAgainst> = {"current", "old", "sampling"};

/// Means over the active tokens (docs/losses-policy.md, "Metrics"). NaN: undefined or not requested.
struct PolicyMetrics {
  int64_t tokens = 0;                                            ///< active tokens
  double mean_ratio = std::numeric_limits<double>::quiet_NaN();  ///< of the importance ratio
  /// The share of tokens clipped at the lower bound.
  double clip_fraction_low = std::numeric_limits<double>::quiet_NaN();
  /// The share of tokens clipped at the upper bound.
  double clip_fraction_high = std::numeric_limits<double>::quiet_NaN();
  double clip_fraction = std::numeric_limits<double>::quiet_NaN();  ///< either
  double mean_kl = std::numeric_limits<double>::quiet_NaN();        ///< with beta
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();   ///< in nats
  double mean_logp = std::numeric_limits<double>::quiet_NaN();      ///< in nats
  /// With a teacher: minus the teacher's log ratio, an estimate of KL(policy, teacher), in nats.
  double mean_teacher_kl = std::numeric_limits<double>::quiet_NaN();
};

/// The loss, and per-token values.
struct PolicyResult {
  double loss = 0;  ///< after aggregation and loss_scale
  /// [N], ℓ_i before aggregation and loss_scale; 0 for ignored tokens.
  std::vector<double> per_token_loss;
  std::vector<double> per_token_logps;  ///< [N], 0 for ignored tokens
  PolicyMetrics metrics;                ///< over the active tokens
  Plan plan;                            ///< what ran
};

/// The loss of sampled completions. Setting an option that the loss type or the other options do not use is
/// an error (docs/losses-policy.md, "Limits"), except for the parameters of sapo, vespo, dro, topr and the
/// covariances.
///
/// [N] vectors may also be [B, T]. The log-probabilities, advantages and scores are contiguous, in float32,
/// float64, bfloat16 or float16, independent of the type of the hidden states. The logits define the
/// sequences: [B, T, H] has B, Logits::offsets has one per interval, and [N, H] without offsets is one
/// sequence. Only the mask ignores tokens; entries of ignored tokens are never read.
struct LOGITLESS_API PolicyLoss {
  using Result = PolicyResult;                         ///< result type of the verbs
  static constexpr const char* kName = "policy_loss";  ///< on every surface
  /// [N] or [B, T], int32 or int64: the token id sampled at each position of hidden. -100 has no special
  /// meaning here.
  ConstTensor chosen_ids = {};
  ConstTensor advantages = {};      ///< [B] or [N], see advantages_per; empty: all 0, only with a teacher
  ConstTensor old_logps = {};       ///< [N], or empty: on-policy, the ratio is 1 and its gradient flows
  ConstTensor ref_logps = {};       ///< [N], required if and only if beta != 0
  ConstTensor sampling_logps = {};  ///< [N], or empty; NaN: unknown
  ConstTensor teacher_logps = {};   ///< [N], required if and only if teacher_weight != 0
  /// [B]: the sequence is a good one if this is above 0. Required by topr and positive_nll_weight, otherwise
  /// refused.
  ConstTensor scores = {};
  std::span<const uint8_t> mask = {};               ///< [N], 1: active, 0: ignored; empty: all are active
  EntriesPer advantages_per = EntriesPer::kBySize;  ///< whether `advantages` is per sequence or per token
  /// The token ids that the sampler kept at each position (its top-k or top-p mask), including the chosen
  /// one; absent: all ids. The policy's log-probabilities are then normalised over the kept ids only, as the
  /// sampler's were: only their rows of the head are read, without a pass over the vocabulary. Supports
  /// neither entropies nor a cut vocabulary.
  IdSets kept = {};

  PolicyLossType loss_type = PolicyLossType::kGrpo;  ///< the loss, and its default aggregation
  /// How log-probabilities are taken. The mask says which rows are active, and chosen_ids belong to the
  /// positions that predict them, so ignore_index and shift are not used.
  TokenOptions token = {};

  /// The level of the ratio (docs/losses-policy.md, "Importance ratio").
  ImportanceLevel importance_sampling_level = ImportanceLevel::kToken;
  /// In [0, 1] (gmpo: >= 0). Unset: 0.2 (gmpo: 0.4); for cispo and dppo no lower bound. Not for loss types
  /// without clipping (docs/losses-policy.md, "Limits").
  std::optional<double> epsilon_low = {};
  /// >= 0. Unset: 0.3 (gmpo: 0.4). For cispo and dppo this is the upper bound itself; unset: 5 and 3.
  std::optional<double> epsilon_high = {};
  /// Two-sided clipping: the upper bound of the ratio where the advantage is negative; positive.
  std::optional<double> delta = {};
  /// Log ratios are clamped to ±log_ratio_clamp, with no gradient outside. In (0, 300]; nullopt means 300, so
  /// that no weight overflows a float64. Above about 80, float32 gradients may overflow.
  std::optional<double> log_ratio_clamp = 20.0;

  double beta = 0;                              ///< weight of the KL penalty, >= 0
  KlEstimator kl_estimator = KlEstimator::kK3;  ///< any other than kK3 needs beta
  bool use_bias_correction_kl = false;          ///< KL times the importance ratio (DeepSeek-V3.2); needs beta

  double entropy_bonus = 0;           ///< weight of the mean entropy, subtracted from the loss; finite
  double top_entropy_quantile = 1.0;  ///< in (0, 1]: share of tokens, by entropy, that keep their loss
  /// Drops the tokens with A < 0 of sequences whose mean of sampling − logp (old − logp without
  /// sampling_logps) is above this.
  std::optional<double> off_policy_mask_threshold = {};

  SamplerCorrection sampler_correction = SamplerCorrection::kNone;  ///< any other than kNone needs sampling_logps
  std::optional<double> sampler_clip_min = {};                      ///< >= 0; needs a sampler_correction
  std::optional<double> sampler_clip_max = 3.0;                     ///< positive; any other than 3 needs a correction

  /// On-policy distillation: the weight of the teacher's log ratio in a token's advantage
  /// (docs/losses-policy.md, "A teacher in the advantage"); finite.
  double teacher_weight = 0;
  TeacherAgainst teacher_against = TeacherAgainst::kCurrent;  ///< any other needs teacher_weight
  /// In [0, 1]: the discount per position of later tokens' log ratios. 0: a token's own ratio only; any other
  /// value needs teacher_weight.
  double teacher_discount = 0;

  /// Which tokens keep their loss; any other than kDefault and kNone needs old_logps to have an effect.
  TrustRegion trust_region = TrustRegion::kDefault;
  std::optional<double> trust_region_low = {};   ///< >= 0; unset: 0.2 (tv_both: 0.1); needs a trust region
  std::optional<double> trust_region_high = {};  ///< the same for the upper bound
  /// M2PO: drops the tokens with the largest (old − sampling)² until the mean of the rest is below this.
  /// Positive; needs sampling_logps.
  std::optional<double> m2_threshold = {};
  /// The weight of (logp − sampling)² (Kimi K2.5, prime-rl), >= 0; needs sampling_logps.
  double sampler_penalty = 0;
  /// The weight of the mean negative log-likelihood over the tokens of sequences with a score above 0 (VAPO),
  /// >= 0; needs scores.
  double positive_nll_weight = 0;

  PolicyAggregation aggregation = PolicyAggregation::kDefault;  ///< how per-token losses become one number
  /// Positive (a value below 1 counts as 1); for token_mean only (the default of dapo, cispo and others).
  std::optional<double> num_items_in_batch = {};
  /// Positive; required by seq_mean_token_sum_norm (the default of dr_grpo), otherwise refused.
  std::optional<int64_t> max_completion_length = {};
  /// Divides a mean over sequences in place of their number. Positive.
  std::optional<double> num_sequences = {};
  /// Whether a mean over sequences counts sequences without active tokens; must be true with
  /// num_sequences.
  bool count_empty_sequences = true;

  double sapo_temperature_pos = 1.0;   ///< where the advantage is positive; > 0
  double sapo_temperature_neg = 1.05;  ///< elsewhere; > 0
  double vespo_k_pos = 2.0;            ///< k where the advantage is >= 0
  double vespo_lambda_pos = 3.0;       ///< λ where the advantage is >= 0
  double vespo_k_neg = 3.0;            ///< k where the advantage is below 0
  double vespo_lambda_neg = 2.0;       ///< λ where the advantage is below 0
  double dro_tau = 0.1;                ///< dro: twice the weight of (logp − old)²; >= 0
  double topr_weight_pos = 1.0;        ///< topr, where the score is above 0; >= 0
  double topr_weight_neg = 1.0;        ///< topr elsewhere; >= 0
  /// clip_cov, kl_cov: the share of tokens to choose, in (0, 1]. kl_cov chooses the largest covariances, on
  /// ties the first. The covariances of a batch of two tokens are equal up to rounding, so rounding decides.
  double cov_share = 0.0002;
  double cov_low = 1.0;        ///< clip_cov chooses among covariances above this
  double cov_high = 5.0;       ///< and below this
  int64_t cov_seed = 0;        ///< seed of clip_cov's choice
  double cov_kl_weight = 0.1;  ///< kl_cov: the weight of |logp − old| at the chosen tokens; >= 0

  double loss_scale = 1.0;    ///< multiplies loss and gradients; finite
  bool want_entropy = false;  ///< fill metrics.mean_entropy if nothing else needs the entropy
};

/// Returns options.aggregation, or the loss type's own aggregation if the option is kDefault.
LOGITLESS_API PolicyAggregation aggregation_of(const PolicyLoss& options);

}  // namespace logitless
