// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Policy-gradient losses of an LM head, fused: GRPO and its family, PPO, RLOO and REINFORCE.
/// Formulas, sources, masks and ties stand in docs/losses.md, section 1.
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

/// This names the per-token loss and its normaliser (docs/losses.md, 1.2 and 1.6).
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

/// How the tokens' losses become one number (docs/losses.md, 1.6). A mean of sequences divides by their
/// number: see count_empty_sequences and num_sequences.
enum class PolicyAggregation {
  kDefault,              ///< as the loss type's paper or project does
  kTokenMean,            ///< the sum, divided by num_items_in_batch or the number of tokens
  kTokenSum,             ///< the sum
  kSeqMeanTokenSum,      ///< the mean of sequences' sums
  kSeqMeanTokenMean,     ///< the mean of sequences' means
  kSeqMeanTokenSumNorm,  ///< the mean of sequences' sums, divided by max_completion_length
};

/// Which tokens keep their loss, by how far the policy has moved from old_logps there (docs/losses.md, 1.3).
/// With p = e^logp and p_old = e^old.
enum class TrustRegion {
  kDefault,  ///< tv for dppo, none for the others
  kNone,     ///< all
  kTv,       ///< p − p_old within the bound that the sign of the advantage pushes to (DPPO, TV)
  kTvBoth,   ///< p − p_old within both bounds (prime-rl's ipo)
  kKl,       ///< as tv, by the KL of two outcomes: the token, and any other (DPPO, KL)
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

/// Whether ratios belong to tokens or to sequences.
enum class ImportanceLevel {
  kToken,     ///< one ratio a token
  kSequence,  ///< GSPO: the geometric mean of a sequence's token ratios
};

/// What r = exp(old − sampling) does to a token's loss when the sampler is not the trainer.
enum class SamplerCorrection {
  kNone,
  kTokenTruncate,
  kTokenMask,
  kSequenceTruncate,
  kSequenceMask,
  kGeometricMask,  ///< a token's own r, where the geometric mean of its sequence's lies within the bounds
};

/// Whose log-probability of a sampled token stands against the teacher's in its advantage.
enum class TeacherAgainst {
  kCurrent,   ///< the policy's own, without gradient (TRL, verl, prime-rl)
  kOld,       ///< old_logps (slime); on-policy the policy's own
  kSampling,  ///< sampling_logps (tinker)
};

/// The names of loss types.
template <>
inline constexpr std::array kNamesOf<PolicyLossType> = {
    "grpo",  "bnpo",  "dr_grpo",   "dapo", "cispo",    "sapo",
    "luspo", "vespo", "reinforce", "rloo", "ppo",      "importance_sampling",
    "dppo",  "gmpo",  "dro",       "topr", "clip_cov", "kl_cov"};
/// The names of aggregations.
template <>
inline constexpr std::array kNamesOf<PolicyAggregation> = {
    "default", "token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"};
/// The names of trust regions.
template <>
inline constexpr std::array kNamesOf<TrustRegion> = {"default", "none", "tv", "tv_both", "kl"};
/// The names of estimators.
template <>
inline constexpr std::array kNamesOf<KlEstimator> = {"k1", "k2", "k3", "abs", "k1_plus", "k3_plus"};
/// The names of levels.
template <>
inline constexpr std::array kNamesOf<ImportanceLevel> = {"token", "sequence"};
/// The names of corrections.
template <>
inline constexpr std::array kNamesOf<SamplerCorrection> = {
    "none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "geometric_mask"};
/// The names of whose log-probabilities stand against a teacher's.
template <>
inline constexpr std::array kNamesOf<TeacherAgainst> = {"current", "old", "sampling"};

/// Means over the tokens that take part (docs/losses.md, 1.7); a metric that has no meaning or was
/// not asked for is NaN.
struct PolicyMetrics {
  int64_t tokens = 0;                                            ///< tokens that took part
  double mean_ratio = std::numeric_limits<double>::quiet_NaN();  ///< of the importance ratio
  /// The share that the lower bound stopped.
  double clip_fraction_low = std::numeric_limits<double>::quiet_NaN();
  /// The share that the upper bound stopped.
  double clip_fraction_high = std::numeric_limits<double>::quiet_NaN();
  double clip_fraction = std::numeric_limits<double>::quiet_NaN();  ///< either
  double mean_kl = std::numeric_limits<double>::quiet_NaN();        ///< with beta
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();   ///< in nats
  double mean_logp = std::numeric_limits<double>::quiet_NaN();      ///< in nats
  /// With a teacher: −teacher's log ratio, an estimate of KL(policy, teacher), in nats.
  double mean_teacher_kl = std::numeric_limits<double>::quiet_NaN();
};

/// What a policy loss is, and what is known of its tokens.
struct PolicyResult {
  double loss = 0;  ///< with its normaliser and loss_scale
  /// [N]: each entry is ℓ_i, before normaliser and loss_scale; it is 0 where a token takes no part.
  std::vector<double> per_token_loss;
  std::vector<double> per_token_logps;  ///< [N], 0 where a token takes no part
  PolicyMetrics metrics;                ///< over the tokens that take part
  Plan plan;                            ///< what ran
};

/// The loss of sampled completions. An option that the loss type or the others leave without a
/// use is an error (docs/losses.md, 1.9), except for the parameters of sapo, vespo, dro, topr and the
/// covariances, whose defaults are in place for every loss type.
///
/// What is [N] may be [B, T]. All but chosen_ids are float32, float64, bfloat16 or float16, and contiguous.
/// Nothing that belongs to a token under a false mask is ever read. The sequences are those of the logits.
struct LOGITLESS_API PolicyLoss {
  using Result = PolicyResult;                         ///< what its verbs return
  static constexpr const char* kName = "policy_loss";  ///< on every surface
  ConstTensor chosen_ids = {};      ///< [N] or [B, T]: the token id that was sampled at each position of hidden
  ConstTensor advantages = {};      ///< [B] or [N], as advantages_per says; empty: all 0, only with a teacher
  ConstTensor old_logps = {};       ///< [N], or empty: on-policy, the ratio is 1 and its gradient flows
  ConstTensor ref_logps = {};       ///< [N], exactly when beta != 0
  ConstTensor sampling_logps = {};  ///< [N], or empty; NaN: unknown
  ConstTensor teacher_logps = {};   ///< [N], exactly when teacher_weight != 0
  /// [B]: a sequence is a good one where this is above 0. Exactly for topr and positive_nll_weight.
  ConstTensor scores = {};
  std::span<const uint8_t> mask = {};               ///< [N], 0 = the token takes no part; empty: all do
  EntriesPer advantages_per = EntriesPer::kBySize;  ///< what `advantages` has an entry for
  /// The token ids that the sampler kept at each position (its top-k or top-p mask), the chosen one among
  /// them; without any, all are kept. Log-probabilities of the policy are then over the kept ids alone, as
  /// the sampler's were: only their rows of the head are read, and nothing walks the vocabulary. It works
  /// neither with entropies nor with a vocabulary that is cut.
  IdSets kept = {};

  PolicyLossType loss_type = PolicyLossType::kGrpo;  ///< loss and normaliser
  /// How log-probabilities are taken. The mask says which rows take part and chosen_ids
  /// stand where they are predicted: ignore_index and shift have no use here.
  TokenOptions token = {};

  /// The level of the ratio (docs/losses.md, 1.1).
  ImportanceLevel importance_sampling_level = ImportanceLevel::kToken;
  /// It is in [0, 1] (gmpo: >= 0), and 0.2 where unset (gmpo: 0.4). Where it is unset, cispo and dppo have no
  /// lower bound.
  /// Not for the loss types that clip nothing (docs/losses.md, 1.9).
  std::optional<double> epsilon_low = {};
  /// >= 0; unset: 0.3 (gmpo: 0.4), and for cispo and dppo, whose upper bound it is itself, 5 and 3.
  std::optional<double> epsilon_high = {};
  /// With two-sided clipping this is the largest ratio of the unclipped side; it is positive.
  std::optional<double> delta = {};
  /// Log ratios are held within ±log_ratio_clamp, without gradient outside. It is in (0, 300]; nullopt means
  /// 300, so that no weight overflows a float64. Beyond about 80, gradients in float32 may overflow.
  std::optional<double> log_ratio_clamp = 20.0;

  double beta = 0;                              ///< weight of the KL penalty, >= 0
  KlEstimator kl_estimator = KlEstimator::kK3;  ///< any but kK3 needs beta
  bool use_bias_correction_kl = false;          ///< KL times the importance ratio (DeepSeek-V3.2); needs beta

  double entropy_bonus = 0;           ///< weight of the mean entropy, subtracted from the loss; finite
  double top_entropy_quantile = 1.0;  ///< in (0, 1]: share of tokens, by entropy, that keep their loss
  /// Sequences with A < 0 whose mean drift is above this are dropped.
  std::optional<double> off_policy_mask_threshold = {};

  SamplerCorrection sampler_correction = SamplerCorrection::kNone;  ///< anything else needs sampling_logps
  std::optional<double> sampler_clip_min = {};                      ///< >= 0; needs a sampler_correction
  std::optional<double> sampler_clip_max = 3.0;                     ///< positive; any but 3 needs one too

  /// On-policy distillation: the weight of the teacher's log ratio in a token's advantage (docs/losses.md,
  /// 1.10); finite.
  double teacher_weight = 0;
  TeacherAgainst teacher_against = TeacherAgainst::kCurrent;  ///< any other needs teacher_weight
  /// In [0, 1]: what one position further on counts for. 0 leaves a token its own ratio; any other needs
  /// teacher_weight.
  double teacher_discount = 0;

  /// The tokens that keep their loss; any but kDefault and kNone needs old_logps to say anything.
  TrustRegion trust_region = TrustRegion::kDefault;
  std::optional<double> trust_region_low = {};   ///< >= 0; unset: 0.2 (tv_both: 0.1); needs a trust region
  std::optional<double> trust_region_high = {};  ///< the same of the upper bound
  /// M2PO: the tokens of the largest (old − sampling)² lose their loss, until the mean of the rest is below
  /// this. It is positive, and needs sampling_logps.
  std::optional<double> m2_threshold = {};
  /// The weight of (logp − sampling)² (Kimi K2.5, prime-rl), >= 0; needs sampling_logps.
  double sampler_penalty = 0;
  /// The weight of the mean negative log-likelihood of the tokens of sequences whose score is above 0 (VAPO),
  /// >= 0; needs scores.
  double positive_nll_weight = 0;

  PolicyAggregation aggregation = PolicyAggregation::kDefault;  ///< how tokens' losses become one number
  /// It is positive (a value below 1 counts as 1), and for token_mean only (by default dapo, cispo and
  /// others).
  std::optional<double> num_items_in_batch = {};
  /// It is positive; only for seq_mean_token_sum_norm (by default dr_grpo), which needs it.
  std::optional<int64_t> max_completion_length = {};
  /// What a mean of sequences divides by in place of their number. It is positive.
  std::optional<double> num_sequences = {};
  /// Whether a sequence without a token that takes part counts in a mean of sequences; true with
  /// num_sequences.
  bool count_empty_sequences = true;

  double sapo_temperature_pos = 1.0;   ///< positive
  double sapo_temperature_neg = 1.05;  ///< positive
  double vespo_k_pos = 2.0;            ///< k where the advantage is >= 0
  double vespo_lambda_pos = 3.0;       ///< λ where the advantage is >= 0
  double vespo_k_neg = 3.0;            ///< k where the advantage is below 0
  double vespo_lambda_neg = 2.0;       ///< λ where the advantage is below 0
  double dro_tau = 0.1;                ///< dro: twice the weight of (logp − old)²; >= 0
  double topr_weight_pos = 1.0;        ///< topr, where the score is above 0; >= 0
  double topr_weight_neg = 1.0;        ///< topr elsewhere; >= 0
  /// clip_cov, kl_cov: the share of tokens that they choose; in (0, 1]. kl_cov: the largest covariances, of
  /// equal ones the first. Where only two tokens take part, theirs are equal, and rounding decides.
  double cov_share = 0.0002;
  double cov_low = 1.0;        ///< clip_cov chooses among covariances above this
  double cov_high = 5.0;       ///< and below this
  int64_t cov_seed = 0;        ///< of the choice of clip_cov
  double cov_kl_weight = 0.1;  ///< kl_cov: the weight of |logp − old| at the chosen tokens; >= 0

  double loss_scale = 1.0;    ///< multiplies loss and gradients; finite
  bool want_entropy = false;  ///< fill metrics.mean_entropy where nothing else needs the entropy
};

/// Returns how tokens' losses become one number: the loss type's way where the option is at its default.
LOGITLESS_API PolicyAggregation aggregation_of(const PolicyLoss& options);

}  // namespace logitless
