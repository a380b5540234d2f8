// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy_variants.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "loss/batch.h"

namespace logitless::loss {
namespace {

using Token = PolicyToken;
using Options = PolicyOptions;

// PPO: Schulman et al. 2017, eq. 7; delta: INTELLECT-2 2025, eq. 2.
PolicyTokenLoss clipped_surrogate(const Token& t, const Options& o) {
  const double a = t.advantage, ratio = t.ratio;
  const double low = least_ratio(o), high = 1 + epsilon_high(o);
  const double most = o.delta.value_or(std::numeric_limits<double>::infinity());
  const double plain = std::min(ratio, most), clipped = std::clamp(ratio, low, high);
  // The ratios are compared, not their products with A, which may round a difference away. A NaN stays NaN.
  if (a > 0 ? plain <= clipped : plain >= clipped) return {-plain * a, 0, ratio > most ? 0 : -a};
  return {-clipped * a, 0, ratio < low || ratio > high ? 0 : -a};
}

// CISPO: MiniMax-M1 2025, eq. 4.
PolicyTokenLoss truncated_weight(const Token& t, const Options& o) {
  const double weight = std::min(t.ratio, epsilon_high(o)) * t.advantage;
  return {-weight * t.logp, -weight, 0};
}

// SAPO: Gao et al. 2025.
PolicyTokenLoss soft_gate(const Token& t, const Options& o) {
  const double a = t.advantage;
  const double tau = a > 0 ? o.sapo_temperature_pos : o.sapo_temperature_neg;
  const double gate = sigmoid(tau * (t.ratio - 1));
  return {-4 / tau * gate * a, 0, -4 * gate * sigmoid(-tau * (t.ratio - 1)) * a};
}

// VESPO 2026: the weight φ has log φ = λ + k W − λ e^W.
PolicyTokenLoss sequence_weight(const Token& t, const Options& o) {
  const double log_weight = std::clamp(t.log_sequence_weight, kLeastLogWeight, kMostLogWeight);
  const bool positive = t.advantage >= 0;
  const double k = positive ? o.vespo_k_pos : o.vespo_k_neg;
  const double lambda = std::max(positive ? o.vespo_lambda_pos : o.vespo_lambda_neg, 1e-4);
  const double phi = std::exp(std::min(lambda + k * log_weight - lambda * std::exp(log_weight), kMostLogRatio));
  const double weight = phi * t.advantage;
  return {-weight * t.logp, -weight, 0};
}

// REINFORCE: Williams 1992.
PolicyTokenLoss of_logp(const Token& t, const Options&) { return {-t.advantage * t.logp, -t.advantage, 0}; }

using enum PolicyVariant;
using enum PolicyDivisor;

// In the order of the enumeration.
constexpr PolicyVariantRow kRows[] = {
    {.variant = kGrpo, .token_loss = clipped_surrogate, .divisor = kSequenceTokens},
    {.variant = kBnpo, .token_loss = clipped_surrogate, .divisor = kTokens},
    {.variant = kDrGrpo, .token_loss = clipped_surrogate, .divisor = kMaxCompletionLength},
    {.variant = kDapo, .token_loss = clipped_surrogate, .divisor = kItems},
    {.variant = kCispo, .token_loss = truncated_weight, .divisor = kItems, .default_epsilon_high = 5.0},
    {.variant = kSapo, .token_loss = soft_gate, .divisor = kSequenceTokens},
    {.variant = kLuspo, .token_loss = clipped_surrogate, .divisor = kSequences},
    {.variant = kVespo, .token_loss = sequence_weight, .divisor = kItems, .has_weight_of_sequence = true},
    {.variant = kReinforce, .token_loss = of_logp, .divisor = kSequences},
    {.variant = kRloo, .token_loss = clipped_surrogate, .divisor = kSequenceTokens, .has_ratio_of_sequence = true},
    {.variant = kPpo, .token_loss = clipped_surrogate, .divisor = kTokens},
};

static_assert(std::size(kRows) == kNamesOf<PolicyVariant>.size(), "each has a row");
static_assert(
    [] {
      for (size_t i = 0; i < std::size(kRows); ++i) {
        if (static_cast<size_t>(kRows[i].variant) != i) return false;
      }
      return true;
    }(),
    "a row stands where its enumerator says");

}  // namespace

bool PolicyVariantRow::is_clipped_surrogate() const { return token_loss == clipped_surrogate; }
bool PolicyVariantRow::is_truncated() const { return token_loss == truncated_weight; }

const PolicyVariantRow& row_of(PolicyVariant variant) { return kRows[static_cast<size_t>(variant)]; }

double epsilon_high(const PolicyOptions& options) {
  return options.epsilon_high.value_or(row_of(options.variant).default_epsilon_high);
}

}  // namespace logitless::loss
