// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The losses of a pair, one row each. A new loss needs a function and a row (and an enumerator, added last).
#pragma once

#include "logitless/preference.h"
#include "loss/math.h"

namespace logitless::loss {

/// The input of a loss: Σ_t log-probabilities of the pair's sequences, or their means per token if the loss
/// uses means. docs/losses-preference.md uses the same letters.
struct PairLogps {
  double c = 0, r = 0;  ///< of the chosen and of the rejected sequence
  double a = 0, b = 0;  ///< c and r minus the reference's; c and r without a reference
};

/// The loss of a pair, and its derivatives by a and b, or by c and r for losses without a reference.
struct PairValue {
  double loss = 0;
  double by_chosen = 0, by_rejected = 0;
};

/// Returns −(1 − ε) log σ(z) − ε log σ(−z), with its slope by z.
WithSlope smoothed_logistic(double z, double smoothing);

/// Upper bound of exponents: e^700 is near the largest float64.
inline constexpr double kMostExponent = 700;

/// The kind of a loss.
enum class PairKind {
  kPair,           ///< of each pair alone: `value` computes it
  kSortedMargins,  ///< logistic of the k-th smallest c − r minus the k-th smallest c⁰ − r⁰
  kSortedRatios,   ///< logistic of the k-th smallest a minus the k-th smallest b
  kLikelihood,     ///< the likelihood of the chosen tokens, without pairs
};

struct PairLossRow {
  PreferenceLossType loss_type;
  PairValue (*value)(const PairLogps& pair, const PreferenceLoss& options) = nullptr;  ///< for kPair
  PairKind kind = PairKind::kPair;
  bool needs_reference = true;
  bool averages = false;            ///< uses means, independent of average_log_prob
  bool with_likelihood = false;     ///< nll_weight is 1 if unset
  bool smooths = false;             ///< uses label_smoothing
  bool needs_smoothing = false;     ///< label_smoothing = 0 is an error
  bool takes_f_divergence = false;  ///< accepts an f_divergence other than reverse_kl
  bool takes_rewards = false;       ///< uses reward_alpha
  double smoothing_below = 1;       ///< label_smoothing must be below this

  bool is_sorted() const { return kind == PairKind::kSortedMargins || kind == PairKind::kSortedRatios; }
};

const PairLossRow& row_of(PreferenceLossType loss);

/// Applies f_divergence to a pair's log ratio.
WithSlope divergence_score_of(double log_ratio, const PreferenceLoss& options);
/// Applies reward_alpha to a sequence's log-probability.
WithSlope reward_of(double logp, const PreferenceLoss& options);

}  // namespace logitless::loss
