// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy variants, one row each. A new variant needs a row (and an enumerator, added last), and a
// function if no other variant has its loss.
#pragma once

#include <cmath>

#include "logitless/policy.h"

namespace logitless::loss {

/// vespo clamps a sequence's log weight, and the logarithm of each token's sampler correction in it, to the
/// range from log 10⁻⁸ to 20.
inline const double kLeastLogWeight = std::log(1e-8);
inline constexpr double kMostLogWeight = 20;

/// The data of one token for a variant, with the letters of docs/losses.md, section 1.
struct PolicyToken {
  double advantage = 0;            ///< A
  double logp = 0;                 ///< log-probability of the token
  double log_ratio = 0;            ///< δ, of the token
  double ratio = 1;                ///< ρ, of the token or of its sequence
  double log_sequence_weight = 0;  ///< W_s of vespo before clamping; 0 for the other variants
  bool is_good = false;            ///< its sequence has a score above 0
  bool is_chosen = false;          ///< chosen by its covariance
};

/// One token's loss and its derivatives.
struct PolicyTokenLoss {
  double loss = 0;
  double by_logp = 0;
  double by_ratio = 0;
};

/// Whether ρ is per sequence, independent of importance_sampling_level.
enum class SequenceRatio {
  kNone,
  kSum,          ///< w = Σ δ
  kClippedMean,  ///< w = the mean of δ, each clipped in log space on the side of its advantage
};

/// The use of the covariance of a token's advantage and log-probability (docs/losses.md, 1.12).
enum class CovarianceRule { kNone, kDrop, kPenalise };

struct PolicyVariantRow {
  PolicyLossType loss_type;
  PolicyTokenLoss (*token_loss)(const PolicyToken& token, const PolicyLoss& options);
  PolicyAggregation aggregation;  ///< if the option is kDefault
  SequenceRatio sequence_ratio = SequenceRatio::kNone;
  bool has_weight_of_sequence = false;      ///< reads log_sequence_weight, which includes the sampler correction
  bool has_loss_without_advantage = false;  ///< if false, the loss is 0 where A = 0
  bool reads_scores = false;
  TrustRegion trust_region = TrustRegion::kNone;  ///< if the option is kDefault
  CovarianceRule covariance = CovarianceRule::kNone;
  double default_epsilon_low = 0.2;   ///< if epsilon_low is unset
  double default_epsilon_high = 0.3;  ///< if epsilon_high is unset

  /// Returns whether the loss is −min(ρ A, clamp(ρ) A).
  bool is_clipped_surrogate() const;
  /// Returns whether the upper bound of the ratio is epsilon_high, not 1 + epsilon_high.
  bool is_truncated() const;
};

const PolicyVariantRow& row_of(PolicyLossType variant);

/// The bounds and the trust region, from the options or the variant's defaults.
double epsilon_low(const PolicyLoss& options);
double epsilon_high(const PolicyLoss& options);
TrustRegion trust_region_of(const PolicyLoss& options);
/// The smallest ratio: 1 − ε_low, or 0 for a truncated weight without epsilon_low.
double least_ratio(const PolicyLoss& options);

}  // namespace logitless::loss
