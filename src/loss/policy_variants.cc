// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The loss of each token under a policy loss type: one row per type. A new one needs a row (and an
// enumerator, added last), and a function if no other type has its loss.

#include <algorithm>
#include <cmath>

#include "core/random_bits.h"
#include "loss/policy_stages.h"

namespace logitless::loss {
namespace {

using Token = PolicyToken;
using Options = PolicyLoss;

// A ratio is clipped below the lower bound if the advantage is negative, above the upper one if it is
// positive.
Clip clip_of(double advantage, bool is_below, bool is_above) {
  if (is_below && advantage < 0) return Clip::kLow;
  return is_above && advantage > 0 ? Clip::kHigh : Clip::kNone;
}

// PPO: Schulman et al. 2017, eq. 7; delta: INTELLECT-2 2025, eq. 2.
PolicyTokenLoss clipped_surrogate(const Token& t, const Options& o) {
  const double a = t.advantage, ratio = t.ratio;
  const double low = least_ratio(o), high = 1 + epsilon_high(o);
  const double most = o.delta.value_or(kInfinity);
  const double plain = std::min(ratio, most), clipped = std::clamp(ratio, low, high);
  const Clip clip = clip_of(a, plain<low, plain> high);
  // Compares the ratios, not their products with A, in which rounding may hide a difference. A NaN stays NaN.
  if (a > 0 ? plain <= clipped : plain >= clipped) return {-plain * a, 0, ratio > most ? 0 : -a, clip};
  return {-clipped * a, 0, ratio < low || ratio > high ? 0 : -a, clip};
}

// CISPO: MiniMax-M1 2025, eq. 4.
PolicyTokenLoss truncated_weight(const Token& t, const Options& o) {
  const double low = least_ratio(o), high = epsilon_high(o);
  const double weight = std::clamp(t.ratio, low, high) * t.advantage;
  return {weighted(-weight, t.logp), -weight, 0, clip_of(t.advantage, t.ratio<low, t.ratio> high)};
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
  const double log_weight = bounded_log_weight(t.sequence_sum);
  const bool positive = t.advantage >= 0;
  const double k = positive ? o.vespo_k_pos : o.vespo_k_neg;
  const double lambda = std::max(positive ? o.vespo_lambda_pos : o.vespo_lambda_neg, 1e-4);
  const double phi = std::exp(std::min(lambda + k * log_weight - lambda * std::exp(log_weight), kMostLogRatio));
  const double weight = phi * t.advantage;
  return {weighted(-weight, t.logp), -weight, 0};
}

// REINFORCE: Williams 1992.
PolicyTokenLoss of_logp(const Token& t, const Options&) { return {-t.advantage * t.logp, -t.advantage, 0}; }

// A ratio without clipping.
PolicyTokenLoss of_ratio(const Token& t, const Options&) { return {-t.ratio * t.advantage, 0, -t.advantage}; }

// GMPO: Zhao et al. 2025. The terms of the ratio are clipped.
PolicyTokenLoss of_clipped_mean(const Token& t, const Options& o) {
  PolicyTokenLoss out = of_ratio(t, o);
  const bool is_clipped = clipped_log_ratio(t, o).slope == 0;
  out.clip = clip_of(t.advantage, is_clipped, is_clipped);
  return out;
}

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
  PolicyTokenLoss out = clipped_surrogate(t, o);
  if (t.is_chosen) out.scale(0);
  return out;
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
    {.loss_type = kVespo,
     .token_loss = sequence_weight,
     .aggregation = kTokenMean,
     .sequence_sum = SequenceSum::kWeight},
    {.loss_type = kReinforce, .token_loss = of_logp, .aggregation = kSeqMeanTokenSum},
    {.loss_type = kRloo,
     .token_loss = clipped_surrogate,
     .aggregation = kSeqMeanTokenMean,
     .sequence_sum = SequenceSum::kSum},
    {.loss_type = kPpo, .token_loss = clipped_surrogate, .aggregation = kTokenMean},
    {.loss_type = kImportanceSampling, .token_loss = of_ratio, .aggregation = kTokenSum},
    {.loss_type = kDppo,
     .token_loss = truncated_weight,
     .aggregation = kTokenMean,
     .trust_region = TrustRegion::kTv,
     .default_epsilon_high = 3.0},
    {.loss_type = kGmpo,
     .token_loss = of_clipped_mean,
     .aggregation = kSeqMeanTokenMean,
     .sequence_sum = SequenceSum::kClippedMean,
     .default_epsilon_low = 0.4,
     .default_epsilon_high = 0.4},
    {.loss_type = kDro, .token_loss = of_logp_near_old, .aggregation = kTokenMean, .has_loss_without_advantage = true},
    {.loss_type = kTopr, .token_loss = tapered, .aggregation = kSeqMeanTokenMean, .reads_scores = true},
    {.loss_type = kClipCov,
     .token_loss = dropped_where_chosen,
     .aggregation = kTokenMean,
     .chooses_by_covariance = true},
    {.loss_type = kKlCov,
     .token_loss = penalised_where_chosen,
     .aggregation = kTokenMean,
     .has_loss_without_advantage = true,
     .chooses_by_covariance = true},
};

static_assert(has_row_per_loss(kRows));

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

double bounded_log_weight(double log_weight) { return std::clamp(log_weight, std::log(1e-8), 20.0); }

WithSlope clipped_log_ratio(const PolicyToken& token, const PolicyLoss& options) {
  const double most = epsilon_high(options), least = -epsilon_low(options);
  if (token.advantage > 0 && token.log_ratio > most) return {most, 0};
  if (token.advantage < 0 && token.log_ratio < least) return {least, 0};
  return token.advantage == 0 ? WithSlope{0, 0} : WithSlope{token.log_ratio, 1};
}

PolicyTokenLoss policy_token_loss(const PolicyToken& token, const PolicyLoss& options) {
  const PolicyVariantRow& row = row_of(options.loss_type);
  // Also if logp is −inf: 0 · ∞ is 0 here.
  if (token.advantage == 0 && !row.has_loss_without_advantage) return {};
  return row.token_loss(token, options);
}

void choose_by_covariance(std::span<const PolicyToken> tokens, const PolicyLoss& options, core::Array<bool>& chosen) {
  const auto count = static_cast<double>(tokens.size());
  // The mean of equal numbers is exactly that number, so their covariances are 0.
  const auto mean_of = [&](double PolicyToken::*value) {
    const double first = tokens.empty() ? 0 : tokens[0].*value;
    double above = 0;
    for (const PolicyToken& token : tokens) above += (token.*value - first) / count;
    return first + above;
  };
  const double mean_advantage = mean_of(&PolicyToken::advantage), mean_logp = mean_of(&PolicyToken::logp);
  if (!std::isfinite(mean_logp) || !std::isfinite(mean_advantage)) return;  // all covariances would be NaN
  const bool drops = options.loss_type == PolicyLossType::kClipCov;
  struct Candidate {
    double covariance;
    uint64_t order;
    size_t row;
  };
  core::Array<Candidate> candidates;
  uint64_t key = core::random_bits(static_cast<uint64_t>(options.cov_seed)) - 1;
  for (const PolicyToken& token : tokens) {
    ++key;  // independent of the layout of the tokens
    const double covariance = (token.advantage - mean_advantage) * (token.logp - mean_logp);
    if (drops) {
      if (!(covariance > options.cov_low && covariance < options.cov_high)) continue;
      const bool is_below = token.ratio<least_ratio(options), is_above = token.ratio> 1 + epsilon_high(options);
      if (clip_of(token.advantage, is_below, is_above) != Clip::kNone) continue;
    }
    candidates.push_back({covariance, drops ? core::random_bits(key) : 0, token.row});
  }
  // clip_cov chooses random candidates, kl_cov those with the largest covariance; ties go to the first.
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if (drops) return a.order != b.order ? a.order < b.order : a.row < b.row;
    return a.covariance != b.covariance ? a.covariance > b.covariance : a.row < b.row;
  });
  const auto share = static_cast<size_t>(options.cov_share * count);
  const size_t most = std::min(candidates.size(), std::max(share, size_t{1}));
  for (size_t k = 0; k < most; ++k) chosen[candidates[k].row] = true;
}

}  // namespace logitless::loss

namespace logitless {

PolicyAggregation aggregation_of(const PolicyLoss& options) {
  const bool by_variant = options.aggregation == PolicyAggregation::kDefault;
  return by_variant ? loss::row_of(options.loss_type).aggregation : options.aggregation;
}

}  // namespace logitless
