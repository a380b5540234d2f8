// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy variants, one row each: a new one is its row (and its enumerator, last), and a function where no
// other variant has its loss.
#pragma once

#include <cmath>

#include "logitless/policy.h"

namespace logitless::loss {

/// vespo holds a sequence's log weight, and each token's sampler correction in it, between these: 10⁻⁸ and
/// e²⁰.
inline const double kLeastLogWeight = std::log(1e-8);
inline constexpr double kMostLogWeight = 20;

/// What a variant sees of one token. The letters are those of docs/losses.md, section 1.
struct PolicyToken {
  double advantage = 0;            ///< A
  double logp = 0;                 ///< log-probability of the token
  double log_ratio = 0;            ///< δ, of the token
  double ratio = 1;                ///< ρ, of the token or of its sequence
  double log_sequence_weight = 0;  ///< W_s of vespo before it is clamped, 0 for the others
  bool is_good = false;            ///< its sequence has a score above 0
  bool is_chosen = false;          ///< by its covariance
};

/// One token's loss and its derivatives.
struct PolicyTokenLoss {
  double loss = 0;
  double by_logp = 0;
  double by_ratio = 0;
};

/// Whether ρ is that of a whole sequence, whatever importance_sampling_level says.
enum class SequenceRatio {
  kNone,
  kSum,          ///< w = Σ δ
  kClippedMean,  ///< w = the mean of δ, each clipped in log space as its advantage pushes it
};

/// What the covariance of a token's advantage and log-probability decides (docs/losses.md, 1.12).
enum class CovarianceRule { kNone, kDrop, kPenalise };

struct PolicyVariantRow {
  PolicyLossType loss_type;
  PolicyTokenLoss (*token_loss)(const PolicyToken& token, const PolicyLoss& options);
  PolicyAggregation aggregation;  ///< where the option is at its default
  SequenceRatio sequence_ratio = SequenceRatio::kNone;
  bool has_weight_of_sequence = false;      ///< reads log_sequence_weight, which holds the sampler correction
  bool has_loss_without_advantage = false;  ///< the others lose nothing where A = 0
  bool reads_scores = false;
  TrustRegion trust_region = TrustRegion::kNone;  ///< where the option is at its default
  CovarianceRule covariance = CovarianceRule::kNone;
  double default_epsilon_low = 0.2;   ///< where epsilon_low is unset
  double default_epsilon_high = 0.3;  ///< where epsilon_high is unset

  /// Tells whether the loss is −min(ρ A, clamp(ρ) A).
  bool is_clipped_surrogate() const;
  /// Tells whether the loss holds its ratio below epsilon_high itself, not 1 + epsilon_high.
  bool is_truncated() const;
};

const PolicyVariantRow& row_of(PolicyLossType variant);

/// The bounds and the trust region, as the options and the variant say.
double epsilon_low(const PolicyLoss& options);
double epsilon_high(const PolicyLoss& options);
TrustRegion trust_region_of(const PolicyLoss& options);
/// The least ratio: 1 − ε_low, or none for a truncated weight without epsilon_low.
double least_ratio(const PolicyLoss& options);

}  // namespace logitless::loss
