// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Preference losses of an LM head, fused: DPO and its family, ORPO, SimPO and CPO on pairs; KTO, BCO, APO
/// and A*PO on single sequences. docs/losses-preference.md has the formulas, sources and which pairs count.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "logitless/context.h"
#include "logitless/logits.h"
#include "logitless/names.h"
#include "logitless/plan.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"

namespace logitless {

/// The loss of a pair (docs/losses-preference.md).
enum class PreferenceLossType {
  kSigmoid,
  kHinge,
  kIpo,
  kExoPair,
  kNcaPair,
  kRobust,
  kBcoPair,
  kSppoHard,
  kApoZero,
  kApoDown,
  kAot,
  kAotUnpaired,
  kDiscopop,
  kSft,
  kOrpo,
  kSimpo,
  kCpo,
  kSigmoidNorm,
};

/// The function applied to a pair's log ratios a and b (f-DPO: Wang et al. 2024; docs/losses-preference.md,
/// "Variants").
enum class FDivergence {
  kReverseKl,  ///< a itself
  kForwardKl,  ///< 1 − e^−a
  kJs,         ///< log 2 + log σ(a)
  kAlpha,      ///< (e^((α − 1) a) − 1) / (α − 1), with f_alpha
};

/// The loss of a single sequence (docs/losses-preference.md, "Single sequences").
enum class KtoLossType {
  kKto,
  kApoZeroUnpaired,
  kBco,
  kA2po,
};

/// What per-sequence reference log-probabilities are.
enum class SequenceLogps {
  kSums,      ///< sums of log-probabilities over the active tokens
  kAverages,  ///< these sums, divided by the number of those tokens
};

/// The names of PreferenceLossType.
template <>
inline constexpr std::array kNamesOf<PreferenceLossType> = {
    "sigmoid",  "hinge", "ipo",          "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero",
    "apo_down", "aot",   "aot_unpaired", "discopop", "sft",      "orpo",   "simpo",    "cpo",       "sigmoid_norm"};
/// The names of FDivergence.
template <>
inline constexpr std::array kNamesOf<FDivergence> = {"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"};
/// The names of KtoLossType.
template <>
inline constexpr std::array kNamesOf<KtoLossType> = {"kto", "apo_zero_unpaired", "bco", "a2po"};
/// The names of SequenceLogps.
template <>
inline constexpr std::array kNamesOf<SequenceLogps> = {"sums", "averages"};
/// Returns whether the loss needs a reference model.
LOGITLESS_API bool needs_reference(PreferenceLossType loss);

/// Means over the active pairs; NaN without any.
struct PreferenceMetrics {
  int64_t pairs = 0;                                                ///< active pairs: both sequences have active tokens
  int64_t tokens = 0;                                               ///< tokens of these pairs
  double chosen_reward = std::numeric_limits<double>::quiet_NaN();  ///< of the chosen sequences
  double rejected_reward = std::numeric_limits<double>::quiet_NaN();  ///< of the rejected sequences
  double margin = std::numeric_limits<double>::quiet_NaN();           ///< chosen minus rejected reward
  double accuracy = std::numeric_limits<double>::quiet_NaN();         ///< share of pairs with a positive margin
  double chosen_logp = std::numeric_limits<double>::quiet_NaN();      ///< of the chosen sequences
  double rejected_logp = std::numeric_limits<double>::quiet_NaN();    ///< of the rejected sequences
  double nll = std::numeric_limits<double>::quiet_NaN();              ///< of the chosen tokens
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();     ///< if requested
};

/// The loss, and per-sequence values.
struct PreferenceResult {
  double loss = 0;  ///< weighted losses and likelihood, times loss_scale
  /// [2B], sums (averages with average_log_prob, or with orpo or simpo), weighted with ld_alpha.
  std::vector<double> sequence_logps;
  std::vector<double> per_token_logps;  ///< [N], 0 for ignored tokens
  PreferenceMetrics metrics;            ///< over the active pairs
  Plan plan;                            ///< what ran for the policy
};

/// A weighted sum of losses of pairs (docs/losses-preference.md). The logits belong to 2B sequences: the B
/// chosen ones, then the B rejected ones, as [2B, T, H] or, if their lengths differ, packed.
struct LOGITLESS_API PreferenceLoss {
  using Result = PreferenceResult;                         ///< result type of the verbs
  static constexpr const char* kName = "preference_loss";  ///< on every surface
  ConstTensor targets = {};                                ///< token ids, [N] or [B, T], int32 or int64
  /// The reference's log-probabilities, float32, float64, bfloat16 or float16: per sequence (sums or
  /// averages, see ref_logps_are) or per token, see ref_logps_per. Either this or `reference` is required if
  /// a loss needs a reference; otherwise both are refused. Entries of ignored tokens and sequences
  /// are not read.
  ConstTensor ref_logps = {};
  EntriesPer ref_logps_per = EntriesPer::kBySize;  ///< whether ref_logps is per sequence or per token
  /// In place of ref_logps: the reference's hidden states of the same tokens (its H may differ) and its head,
  /// over the same vocabulary. The call runs its forward pass, with the same targets and options.
  Logits reference = {};
  /// The losses to sum, at least one.
  std::vector<PreferenceLossType> loss_type = {PreferenceLossType::kSigmoid};
  /// One finite weight per entry of `loss_type`; empty: all 1. A loss with weight 0 still counts as enabled:
  /// it needs the same inputs.
  std::vector<double> loss_weights = {};
  double beta = 0.1;              ///< positive and finite
  double label_smoothing = 0;     ///< in [0, 1); only if one of the losses uses it
  bool average_log_prob = false;  ///< use a sequence's mean log-probability instead of its sum
  /// What a per-sequence ref_logps holds, independent of average_log_prob.
  SequenceLogps ref_logps_are = SequenceLogps::kSums;
  double discopop_tau = 0.05;  ///< positive and finite
  double simpo_gamma = 0.5;    ///< finite
  /// Values other than kReverseKl work only with sigmoid, sigmoid_norm, hinge, ipo, exo_pair, robust,
  /// discopop and sft.
  FDivergence f_divergence = FDivergence::kReverseKl;
  double f_alpha = 0.5;  ///< the α of kAlpha, finite; a value other than 0.5 needs kAlpha
  /// LD-DPO: the weight of a sequence's tokens beyond the length of the pair's shorter one, in [0, 1]. A
  /// reference must then be per token, or states and a head.
  std::optional<double> ld_alpha = {};
  /// WPO: multiply each pair's loss by the policy's probability of both sequences, without gradient. Refused
  /// with aot and aot_unpaired, and for sft alone; next to other losses, sft is not multiplied.
  bool use_weighting = false;
  /// AlphaPO: simpo and cpo compare (1 − e^(−α L)) / α in place of L; 0: L itself. Finite.
  double reward_alpha = 0;
  /// The weight of the likelihood of the chosen sequences (CPO's alpha), >= 0. Unset: 1 with orpo or cpo,
  /// else 0.
  std::optional<double> nll_weight = {};
  /// Which tokens are active (prompts are not), and how log-probabilities are taken.
  TokenOptions token = {};
  double loss_scale = 1.0;    ///< multiplies loss and gradients; finite
  bool want_entropy = false;  ///< fill metrics.mean_entropy
};

/// Means over the active sequences of each kind; NaN without any.
struct KtoMetrics {
  int64_t desirable = 0;                                                 ///< active sequences
  int64_t undesirable = 0;                                               ///< active sequences
  int64_t tokens = 0;                                                    ///< tokens of all these sequences
  double kl = 0;                                                         ///< the baseline
  double desirable_reward = std::numeric_limits<double>::quiet_NaN();    ///< mean reward
  double undesirable_reward = std::numeric_limits<double>::quiet_NaN();  ///< mean reward
  double margin = std::numeric_limits<double>::quiet_NaN();              ///< desirable minus undesirable reward
  double desirable_logp = std::numeric_limits<double>::quiet_NaN();      ///< mean log-probability
  double undesirable_logp = std::numeric_limits<double>::quiet_NaN();    ///< mean log-probability
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();        ///< if requested
};

/// The loss, and per-sequence values.
struct KtoResult {
  double loss = 0;  ///< the mean over the sequences, times loss_scale
  /// [B], ℓ_s, weighted, without loss_scale; 0 for ignored sequences.
  std::vector<double> sequence_losses;
  std::vector<double> sequence_logps;   ///< [B], sums (averages with average_log_prob)
  std::vector<double> per_token_logps;  ///< [N]
  KtoMetrics metrics;                   ///< over the active sequences
  Plan plan;                            ///< what ran for the policy
};

/// The loss of B single sequences (docs/losses-preference.md, "Single sequences").
struct LOGITLESS_API KtoLoss {
  using Result = KtoResult;                         ///< result type of the verbs
  static constexpr const char* kName = "kto_loss";  ///< on every surface
  ConstTensor targets = {};                         ///< token ids, [N] or [B, T], int32 or int64
  std::span<const uint8_t> labels = {};             ///< [B]: 1 = desirable, 0 = not; optional for a2po
  ConstTensor ref_logps = {};                       ///< as in PreferenceLoss; either this or `reference` is required
  EntriesPer ref_logps_per = EntriesPer::kBySize;   ///< whether ref_logps is per sequence or per token
  Logits reference = {};                            ///< in place of ref_logps
  /// kto only: log-probabilities of mismatched completions under the policy, used as given (averages with
  /// average_log_prob), one for each entry of kl_ref_logps. The baseline is the mean difference of the two,
  /// or 0 if that is negative or both are empty.
  ConstTensor kl_logps = {};
  ConstTensor kl_ref_logps = {};  ///< the same under the reference
  /// [B]: weights of the losses, >= 0; empty: all 1. Entries of ignored sequences are not read.
  ConstTensor sequence_weights = {};
  /// [B]: reward − value, to which a2po fits beta times the log ratio; required by a2po, otherwise refused.
  /// Entries of ignored sequences are not read.
  ConstTensor reward_targets = {};
  KtoLossType loss_type = KtoLossType::kKto;  ///< the loss
  double beta = 0.1;                          ///< positive and finite
  double desirable_weight = 1.0;              ///< >= 0, finite
  double undesirable_weight = 1.0;            ///< >= 0, finite
  double bco_delta = 0;                       ///< bco: baseline of the rewards, the mean of past ones; finite
  bool average_log_prob = false;              ///< use a sequence's mean log-probability instead of its sum
  /// What a per-sequence ref_logps holds, independent of average_log_prob.
  SequenceLogps ref_logps_are = SequenceLogps::kSums;
  /// Which tokens are active (prompts are not), and how log-probabilities are taken.
  TokenOptions token = {};
  double loss_scale = 1.0;    ///< multiplies loss and gradients
  bool want_entropy = false;  ///< fill metrics.mean_entropy
};

}  // namespace logitless
