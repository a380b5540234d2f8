// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The policy variants, one row each: a new one is its row (and its enumerator, last), and a function where no
// other variant has its loss.
#pragma once

#include <cmath>

#include "logitless/policy.h"

namespace logitless::loss {

/// Logarithms of ratios and weights are held within ± this, whatever the options say: the product of two such
/// weights, an advantage and a sum over tokens is a finite float64.
inline constexpr double kMostLogRatio = 300;

/// vespo holds a sequence's log weight, and each token's sampler correction in it, between these: 10⁻⁸ and
/// e²⁰.
inline const double kLeastLogWeight = std::log(1e-8);
inline constexpr double kMostLogWeight = 20;

/// What a variant sees of one token. The letters are those of docs/losses.md, section 1.
struct PolicyToken {
  double advantage = 0;            ///< A, never 0
  double logp = 0;                 ///< log-probability of the token
  double ratio = 1;                ///< ρ, of the token or of its sequence
  double log_sequence_weight = 0;  ///< W_s of vespo before it is clamped, 0 for the others
};

/// One token's loss and its derivatives.
struct PolicyTokenLoss {
  double loss = 0;
  double by_logp = 0;
  double by_ratio = 0;
};

/// What the sum of the tokens' losses is divided by (docs/losses.md, 1.6).
enum class PolicyDivisor {
  kSequenceTokens,       ///< B, and each sequence's part by its tokens
  kTokens,               ///< the tokens
  kMaxCompletionLength,  ///< B · max_completion_length, which it needs
  kItems,                ///< num_items_in_batch, or the tokens
  kSequences,            ///< B
};

struct PolicyVariantRow {
  PolicyVariant variant;
  PolicyTokenLoss (*token_loss)(const PolicyToken& token, const PolicyOptions& options);
  PolicyDivisor divisor;
  bool has_ratio_of_sequence = false;   ///< ρ is that of a whole sequence: Σ δ instead of a token's δ
  bool has_weight_of_sequence = false;  ///< reads log_sequence_weight, which holds the sampler correction
  double default_epsilon_high = 0.3;    ///< where epsilon_high is unset

  /// Tells whether the loss is −min(ρ A, clamp(ρ) A).
  bool is_clipped_surrogate() const;
  /// Tells whether the loss holds its ratio below epsilon_high itself, not 1 + epsilon_high.
  bool is_truncated() const;
};

const PolicyVariantRow& row_of(PolicyVariant variant);

/// The bounds of the ratio, as the options and the variant say.
inline double least_ratio(const PolicyOptions& options) { return 1 - options.epsilon_low.value_or(0.2); }
double epsilon_high(const PolicyOptions& options);

}  // namespace logitless::loss
