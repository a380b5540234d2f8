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
using Options = PolicyLoss;

// PPO: Schulman et al. 2017, eq. 7; delta: INTELLECT-2 2025, eq. 2.
PolicyTokenLoss clipped_surrogate(const Token& t, const Options& o) {
  const double a = t.advantage, ratio = t.ratio;
  const double low = least_ratio(o), high = 1 + epsilon_high(o);
  const double most = o.delta.value_or(std::numeric_limits<double>::infinity());
  const double plain = std::min(ratio, most), clipped = std::clamp(ratio, low, high);
  // Compares the ratios, not their products with A, in which rounding may hide a difference. A NaN stays NaN.
  if (a > 0 ? plain <= clipped : plain >= clipped) return {-plain * a, 0, ratio > most ? 0 : -a};
  return {-clipped * a, 0, ratio < low || ratio > high ? 0 : -a};
}

// CISPO: MiniMax-M1 2025, eq. 4.
PolicyTokenLoss truncated_weight(const Token& t, const Options& o) {
  const double weight = std::clamp(t.ratio, least_ratio(o), epsilon_high(o)) * t.advantage;
  return {weighted(-weight, t.logp), -weight, 0};
}

// SAPO: Gao et al. 2025.
PolicyTokenLoss soft_gate(const Token& t, const Options& o) {
  const double a = t.advantage;
  const double tau = a > 0 ? o.sapo_temperature_pos : o.sapo_temperature_neg;
  const double gate = sigmoid(tau * (t.ratio - 1));
  return {-4 / tau * gate * a, 0, -4 * gate * sigmoid(-tau * (t.ratio - 1)) * a};
}

// VESPO 2026: the weight φ with log φ = λ + k W − λ e^W.
PolicyTokenLoss sequence_weight(const Token& t, const Options& o) {
  const double log_weight = std::clamp(t.log_sequence_weight, kLeastLogWeight, kMostLogWeight);
  const bool positive = t.advantage >= 0;
  const double k = positive ? o.vespo_k_pos : o.vespo_k_neg;
  const double lambda = std::max(positive ? o.vespo_lambda_pos : o.vespo_lambda_neg, 1e-4);
  const double phi = std::exp(std::min(lambda + k * log_weight - lambda * std::exp(log_weight), kMostLogRatio));
  const double weight = phi * t.advantage;
  return {weighted(-weight, t.logp), -weight, 0};
}

// REINFORCE: Williams 1992.
PolicyTokenLoss of_logp(const Token& t, const Options&) { return {-t.advantage * t.logp, -t.advantage, 0}; }

// A ratio without clipping; GMPO clips its terms (Zhao et al. 2025).
PolicyTokenLoss of_ratio(const Token& t, const Options&) { return {-t.ratio * t.advantage, 0, -t.advantage}; }

// Kimi k1.5 2025, eq. 3.
PolicyTokenLoss of_logp_near_old(const Token& t, const Options& o) {
  PolicyTokenLoss out = t.advantage == 0 ? PolicyTokenLoss() : of_logp(t, o);
  out.loss += weighted(o.dro_tau / 2, t.log_ratio * t.log_ratio);
  out.by_logp += weighted(o.dro_tau, t.log_ratio);
  return out;
}

// TOPR: Le Roux et al. 2025, eq. 8.
PolicyTokenLoss tapered(const Token& t, const Options& o) {
  const double weight = (t.is_good ? o.topr_weight_pos : o.topr_weight_neg * std::min(t.ratio, 1.0)) * t.advantage;
  return {weighted(-weight, t.logp), -weight, 0};
}

// Clip-Cov: Cui et al. 2025.
PolicyTokenLoss dropped_where_chosen(const Token& t, const Options& o) {
  return t.is_chosen ? PolicyTokenLoss() : clipped_surrogate(t, o);
}

// KL-Cov: Cui et al. 2025.
PolicyTokenLoss penalised_where_chosen(const Token& t, const Options& o) {
  PolicyTokenLoss out = t.advantage == 0 ? PolicyTokenLoss() : of_ratio(t, o);
  if (!t.is_chosen) return out;
  out.loss += o.cov_kl_weight * std::abs(t.log_ratio);
  if (t.log_ratio != 0) out.by_logp += std::copysign(o.cov_kl_weight, t.log_ratio);
  return out;
}

using enum PolicyLossType;
using enum PolicyAggregation;

// In the order of the enumeration.
constexpr PolicyVariantRow kRows[] = {
    {.loss_type = kGrpo, .token_loss = clipped_surrogate, .aggregation = kSeqMeanTokenMean},
    {.loss_type = kBnpo, .token_loss = clipped_surrogate, .aggregation = kTokenMean},
    {.loss_type = kDrGrpo, .token_loss = clipped_surrogate, .aggregation = kSeqMeanTokenSumNorm},
    {.loss_type = kDapo, .token_loss = clipped_surrogate, .aggregation = kTokenMean},
    {.loss_type = kCispo, .token_loss = truncated_weight, .aggregation = kTokenMean, .default_epsilon_high = 5.0},
    {.loss_type = kSapo, .token_loss = soft_gate, .aggregation = kSeqMeanTokenMean},
    {.loss_type = kLuspo, .token_loss = clipped_surrogate, .aggregation = kSeqMeanTokenSum},
    {.loss_type = kVespo, .token_loss = sequence_weight, .aggregation = kTokenMean, .has_weight_of_sequence = true},
    {.loss_type = kReinforce, .token_loss = of_logp, .aggregation = kSeqMeanTokenSum},
    {.loss_type = kRloo,
     .token_loss = clipped_surrogate,
     .aggregation = kSeqMeanTokenMean,
     .sequence_ratio = SequenceRatio::kSum},
    {.loss_type = kPpo, .token_loss = clipped_surrogate, .aggregation = kTokenMean},
    {.loss_type = kImportanceSampling, .token_loss = of_ratio, .aggregation = kTokenSum},
    {.loss_type = kDppo,
     .token_loss = truncated_weight,
     .aggregation = kTokenMean,
     .trust_region = TrustRegion::kTv,
     .default_epsilon_high = 3.0},
    {.loss_type = kGmpo,
     .token_loss = of_ratio,
     .aggregation = kSeqMeanTokenMean,
     .sequence_ratio = SequenceRatio::kClippedMean,
     .default_epsilon_low = 0.4,
     .default_epsilon_high = 0.4},
    {.loss_type = kDro, .token_loss = of_logp_near_old, .aggregation = kTokenMean, .has_loss_without_advantage = true},
    {.loss_type = kTopr, .token_loss = tapered, .aggregation = kSeqMeanTokenMean, .reads_scores = true},
    {.loss_type = kClipCov,
     .token_loss = dropped_where_chosen,
     .aggregation = kTokenMean,
     .covariance = CovarianceRule::kDrop},
    {.loss_type = kKlCov,
     .token_loss = penalised_where_chosen,
     .aggregation = kTokenMean,
     .has_loss_without_advantage = true,
     .covariance = CovarianceRule::kPenalise},
};

static_assert(std::size(kRows) == kNamesOf<PolicyLossType>.size(), "each has a row");
static_assert(
    [] {
      for (size_t i = 0; i < std::size(kRows); ++i) {
        if (static_cast<size_t>(kRows[i].loss_type) != i) return false;
      }
      return true;
    }(),
    "a row stands where its enumerator says");

}  // namespace

bool PolicyVariantRow::is_clipped_surrogate() const {
  return token_loss == clipped_surrogate || token_loss == dropped_where_chosen;
}
bool PolicyVariantRow::is_truncated() const { return token_loss == truncated_weight; }

const PolicyVariantRow& row_of(PolicyLossType variant) { return kRows[static_cast<size_t>(variant)]; }

double epsilon_low(const PolicyLoss& options) {
  return options.epsilon_low.value_or(row_of(options.loss_type).default_epsilon_low);
}

double epsilon_high(const PolicyLoss& options) {
  return options.epsilon_high.value_or(row_of(options.loss_type).default_epsilon_high);
}

double least_ratio(const PolicyLoss& options) {
  if (row_of(options.loss_type).is_truncated() && !options.epsilon_low) return 0;
  return 1 - epsilon_low(options);
}

TrustRegion trust_region_of(const PolicyLoss& options) {
  return options.trust_region == TrustRegion::kDefault ? row_of(options.loss_type).trust_region : options.trust_region;
}

}  // namespace logitless::loss

namespace logitless {

PolicyAggregation aggregation_of(const PolicyLoss& options) {
  const bool by_variant = options.aggregation == PolicyAggregation::kDefault;
  return by_variant ? loss::row_of(options.loss_type).aggregation : options.aggregation;
}

}  // namespace logitless
