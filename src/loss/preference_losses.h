// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The losses of a pair, one row each: a new loss is its function and its row (and its enumerator, last).
#pragma once

#include "logitless/preference.h"

namespace logitless::loss {

/// What a loss sees of one pair: Σ_t log-probabilities of its sequences, or their means per token where the
/// loss takes means. The letters are those of docs/losses.md, section 2.
struct PairLogps {
  double c = 0, r = 0;  ///< of the chosen and of the rejected sequence
  double a = 0, b = 0;  ///< the same less the reference's; c and r without a reference
};

/// The loss of a pair, and its derivatives by a and b, or by c and r where the loss has no reference.
struct PairValue {
  double loss = 0;
  double by_chosen = 0, by_rejected = 0;
};

/// −(1 − ε) log σ(z) − ε log σ(−z) and its derivative by z.
struct Logistic {
  double loss = 0;
  double slope = 0;
};
Logistic smoothed_logistic(double z, double smoothing);

/// Bounds exponents that would overflow: e^700 is near the largest float64.
inline constexpr double kMostExponent = 700;

/// Where the loss comes from.
enum class PairKind {
  kPair,           ///< from each pair by itself: `value` computes it
  kSortedMargins,  ///< logistic in the k-th smallest c − r less the k-th smallest c⁰ − r⁰
  kSortedRatios,   ///< logistic in the k-th smallest a less the k-th smallest b
  kLikelihood,     ///< the likelihood of the chosen tokens: no pair is looked at
};

struct PairLossRow {
  PreferenceLossType loss;
  PairValue (*value)(const PairLogps& pair, const PreferenceLoss& options) = nullptr;  ///< for kPair
  PairKind kind = PairKind::kPair;
  bool needs_reference = true;
  bool averages = false;            ///< takes means whatever average_log_prob says
  bool with_likelihood = false;     ///< nll_weight is 1 where it is unset
  bool smooths = false;             ///< has a use for label_smoothing
  bool needs_smoothing = false;     ///< label_smoothing = 0 is an error
  bool takes_f_divergence = false;  ///< f_divergence may be another than reverse_kl
  bool takes_rewards = false;       ///< has a use for reward_alpha
  double smoothing_below = 1;       ///< label_smoothing must be below this

  bool is_sorted() const { return kind == PairKind::kSortedMargins || kind == PairKind::kSortedRatios; }
};

const PairLossRow& row_of(PreferenceLossType loss);

/// A number that stands in place of another one, and its slope by that.
struct Replaced {
  double value = 0, slope = 1;
};
/// Of a pair's log ratio: f_divergence.
Replaced divergence_score_of(double log_ratio, const PreferenceLoss& options);
/// Of a sequence's log-probability: reward_alpha.
Replaced reward_of(double logp, const PreferenceLoss& options);

}  // namespace logitless::loss
