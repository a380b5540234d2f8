// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// Preference losses of an LM head, fused: DPO and its family, ORPO, SimPO and CPO on pairs; KTO, BCO,
/// APO and A*PO on single sequences. Formulas, sources and which pairs count stand in docs/losses.md,
/// section 2.
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

/// This names the loss of a pair (docs/losses.md, section 2).
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

/// What stands in place of a pair's log ratios a and b (f-DPO: Wang et al. 2024; docs/losses.md, 2.1).
enum class FDivergence {
  kReverseKl,  ///< themselves
  kForwardKl,  ///< 1 − e^−a
  kJs,         ///< log 2 + log σ(a)
  kAlpha,      ///< (e^((α − 1) a) − 1) / (α − 1), with f_alpha
};

/// The loss of a sequence that stands alone (docs/losses.md, 2.2).
enum class KtoLossType {
  kKto,
  kApoZeroUnpaired,
  kBco,
  kA2po,
};

/// What the reference's numbers are where it has one per sequence.
enum class SequenceLogps {
  kSums,      ///< of the log-probabilities of the tokens that take part
  kAverages,  ///< these sums, divided by the number of those tokens
};

/// The names of losses.
template <>
inline constexpr std::array kNamesOf<PreferenceLossType> = {
    "sigmoid",  "hinge", "ipo",          "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "apo_zero",
    "apo_down", "aot",   "aot_unpaired", "discopop", "sft",      "orpo",   "simpo",    "cpo",       "sigmoid_norm"};
/// The names of f-divergences.
template <>
inline constexpr std::array kNamesOf<FDivergence> = {"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"};
/// The names of losses of single sequences.
template <>
inline constexpr std::array kNamesOf<KtoLossType> = {"kto", "apo_zero_unpaired", "bco", "a2po"};
/// The names of what sequences have.
template <>
inline constexpr std::array kNamesOf<SequenceLogps> = {"sums", "averages"};
/// Tells whether the loss compares with a reference model.
LOGITLESS_API bool needs_reference(PreferenceLossType loss);

/// Means over the pairs that take part, and NaN when there are none.
struct PreferenceMetrics {
  int64_t pairs = 0;   ///< pairs that take part: both of their sequences have a token
  int64_t tokens = 0;  ///< their tokens
  double chosen_reward = std::numeric_limits<double>::quiet_NaN();    ///< of the chosen sequence
  double rejected_reward = std::numeric_limits<double>::quiet_NaN();  ///< of the rejected one
  double margin = std::numeric_limits<double>::quiet_NaN();           ///< chosen less rejected reward
  double accuracy = std::numeric_limits<double>::quiet_NaN();         ///< share with a positive margin
  double chosen_logp = std::numeric_limits<double>::quiet_NaN();      ///< of the chosen sequence
  double rejected_logp = std::numeric_limits<double>::quiet_NaN();    ///< of the rejected one
  double nll = std::numeric_limits<double>::quiet_NaN();              ///< of the chosen tokens
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();     ///< when asked for
};

/// What a loss of pairs is, and what is known of its sequences.
struct PreferenceResult {
  double loss = 0;  ///< weighted losses and likelihood, times loss_scale
  /// [2B]: these are sums (averages with average_log_prob, or with orpo or simpo), weighed with ld_alpha.
  std::vector<double> sequence_logps;
  std::vector<double> per_token_logps;  ///< [N], 0 where a token takes no part
  PreferenceMetrics metrics;            ///< over the pairs that take part
  Plan plan;                            ///< what ran for the policy
};

/// A weighted sum of losses of pairs (docs/losses.md, section 2). The logits are of 2B sequences: the B
/// chosen ones, then the B rejected ones, as [2B, T, H] or, where their lengths differ, packed.
struct LOGITLESS_API PreferenceLoss {
  using Result = PreferenceResult;                         ///< what its verbs return
  static constexpr const char* kName = "preference_loss";  ///< on every surface
  ConstTensor targets = {};                                ///< token ids, [N] or [B, T], int32 or int64
  /// What the reference model says of the sequences, needed exactly when a loss needs one, in one of two
  /// forms. Either ref_logps, float32, float64, bfloat16 or float16: the sum of log-probabilities of each
  /// sequence (their average, if ref_logps_are says so), or the log-probability of each token, as
  /// ref_logps_per says. Entries of tokens and sequences that take no part are not read.
  ConstTensor ref_logps = {};
  EntriesPer ref_logps_per = EntriesPer::kBySize;  ///< what ref_logps has an entry for
  /// Or the reference's own hidden states of the same tokens (its H may differ) and its head, of the same
  /// vocabulary: they are run forward in the same call, with the same targets and options.
  Logits reference = {};
  /// The weighted sum of these, of which there is at least one, is the loss.
  std::vector<PreferenceLossType> loss_type = {PreferenceLossType::kSigmoid};
  /// One finite weight for each of `loss_type`; empty: all are 1. A loss of weight 0 adds nothing but asks
  /// for what it always asks for.
  std::vector<double> loss_weights = {};
  double beta = 0.1;              ///< positive and finite
  double label_smoothing = 0;     ///< in [0, 1); only where one of the losses has a use for it
  bool average_log_prob = false;  ///< a sequence's mean log-probability instead of its sum
  /// What ref_logps holds if it has one entry per sequence, whatever average_log_prob says.
  SequenceLogps ref_logps_are = SequenceLogps::kSums;
  double discopop_tau = 0.05;  ///< positive and finite
  double simpo_gamma = 0.5;    ///< finite
  /// Any but kReverseKl is for sigmoid, sigmoid_norm, hinge, ipo, exo_pair, robust, discopop and sft only.
  FDivergence f_divergence = FDivergence::kReverseKl;
  double f_alpha = 0.5;  ///< the α of kAlpha, finite; any other than 0.5 needs it
  /// LD-DPO: tokens of a sequence beyond the length of the pair's shorter one count this much, in [0, 1]. A
  /// reference then has one log-probability a token, or states and a head.
  std::optional<double> ld_alpha = {};
  /// WPO: a pair's loss times how probable the policy finds both sequences, without gradient. Not for aot and
  /// aot_unpaired; sft beside other losses does not see it.
  bool use_weighting = false;
  /// AlphaPO: simpo and cpo compare (1 − e^(−α L)) / α in place of L; 0 is L itself. Finite.
  double reward_alpha = 0;
  /// The weight of the likelihood of the chosen sequences (CPO's alpha), >= 0. Unset it is 1 with
  /// orpo or cpo, else 0.
  std::optional<double> nll_weight = {};
  /// Which tokens take part (prompts do not), and how log-probabilities are taken.
  TokenOptions token = {};
  double loss_scale = 1.0;    ///< multiplies loss and gradients; finite
  bool want_entropy = false;  ///< fill metrics.mean_entropy
};

/// Means over the sequences of each kind that take part, and NaN when there are none.
struct KtoMetrics {
  int64_t desirable = 0;                                                 ///< sequences
  int64_t undesirable = 0;                                               ///< sequences
  int64_t tokens = 0;                                                    ///< of all of them
  double kl = 0;                                                         ///< the baseline
  double desirable_reward = std::numeric_limits<double>::quiet_NaN();    ///< mean reward
  double undesirable_reward = std::numeric_limits<double>::quiet_NaN();  ///< mean reward
  double margin = std::numeric_limits<double>::quiet_NaN();              ///< desirable less undesirable reward
  double desirable_logp = std::numeric_limits<double>::quiet_NaN();      ///< mean log-probability
  double undesirable_logp = std::numeric_limits<double>::quiet_NaN();    ///< mean log-probability
  double mean_entropy = std::numeric_limits<double>::quiet_NaN();        ///< when asked for
};

/// What a loss of single sequences is, and what is known of them.
struct KtoResult {
  double loss = 0;  ///< the mean over the sequences, times loss_scale
  /// [B]: each entry is ℓ_s, weighted, without loss_scale; it is 0 where a sequence takes no part.
  std::vector<double> sequence_losses;
  std::vector<double> sequence_logps;   ///< [B], sums (averages with average_log_prob)
  std::vector<double> per_token_logps;  ///< [N]
  KtoMetrics metrics;                   ///< over the sequences that take part
  Plan plan;                            ///< what ran for the policy
};

/// The loss of sequences that stand alone, B of them (docs/losses.md, 2.2).
struct LOGITLESS_API KtoLoss {
  using Result = KtoResult;                         ///< what its verbs return
  static constexpr const char* kName = "kto_loss";  ///< on every surface
  ConstTensor targets = {};                         ///< token ids, [N] or [B, T], int32 or int64
  std::span<const uint8_t> labels = {};             ///< [B]: 1 = desirable, 0 = not; a2po may have none
  ConstTensor ref_logps = {};                       ///< as in PreferenceLoss; it or the reference is needed
  EntriesPer ref_logps_per = EntriesPer::kBySize;   ///< what ref_logps has an entry for
  Logits reference = {};                            ///< in place of ref_logps
  /// Sequence log-probabilities of mismatched completions under the policy and the reference, of
  /// equal length, taken as they are: averages with average_log_prob. The baseline is the mean of their
  /// differences, and 0 where that is below 0 or both are empty. For kto only.
  ConstTensor kl_logps = {};
  ConstTensor kl_ref_logps = {};  ///< those of the reference
  /// [B]: factors of the losses, >= 0, or empty: all are 1. Only those of sequences that take part are read.
  ConstTensor sequence_weights = {};
  /// [B]: what a2po fits, reward − value; exactly for a2po. Only those of sequences that take part are read.
  ConstTensor reward_targets = {};
  KtoLossType loss_type = KtoLossType::kKto;  ///< which
  double beta = 0.1;                          ///< positive and finite
  double desirable_weight = 1.0;              ///< >= 0, finite
  double undesirable_weight = 1.0;            ///< >= 0, finite
  double bco_delta = 0;                       ///< bco: what rewards are compared with, the mean of past ones; finite
  bool average_log_prob = false;              ///< a sequence's mean log-probability instead of its sum
  /// What ref_logps holds if it has one entry per sequence, whatever average_log_prob says.
  SequenceLogps ref_logps_are = SequenceLogps::kSums;
  /// Which tokens take part (prompts do not), and how log-probabilities are taken.
  TokenOptions token = {};
  double loss_scale = 1.0;    ///< multiplies loss and gradients
  bool want_entropy = false;  ///< fill metrics.mean_entropy
};

}  // namespace logitless
