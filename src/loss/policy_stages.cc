// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy_stages.h"

#include <algorithm>
#include <cmath>

namespace logitless::loss {
namespace {

SequenceSum sum_of(const PolicyLoss& options) {
  if (options.importance_sampling_level == ImportanceLevel::kSequence) return SequenceSum::kMean;
  return row_of(options.loss_type).sequence_sum;
}

// Returns r for the log ratio of a token or of a sequence.
double sampler_correction(const PolicyLoss& options, double log_ratio) {
  const double r = bounded_exp(log_ratio, kMostLogRatio).value;
  const double low = options.sampler_clip_min.value_or(0);
  const double high = options.sampler_clip_max.value_or(kInfinity);
  switch (options.sampler_correction) {
    case SamplerCorrection::kTokenMask:
    case SamplerCorrection::kSequenceMask:
    case SamplerCorrection::kGeometricMask:
      return r < low || r > high ? 0 : r;
    default:
      return std::clamp(r, low, high);
  }
}

}  // namespace

PolicyRatios::PolicyRatios(const PolicyLoss& options, const SequenceTokens& tokens)
    : options_(options), clamp_(options.log_ratio_clamp.value_or(kMostLogRatio)) {
  if (sum_of(options) != SequenceSum::kNone) sums_.resize(tokens.counts.size());
}

bool PolicyRatios::are_shared() const { return !sums_.empty() && sum_of(options_) != SequenceSum::kWeight; }

// Returns a token's summand, and its slope by δ.
WithSlope PolicyRatios::term(const PolicyToken& token) const {
  switch (sum_of(options_)) {
    case SequenceSum::kClippedMean:
      return clipped_log_ratio(token, options_);
    case SequenceSum::kWeight:
      return {std::clamp(token.log_ratio, -clamp_, clamp_), 0};
    default:
      return {token.log_ratio, 1};
  }
}

void PolicyRatios::add(const PolicyToken& token) {
  if (sums_.empty()) return;
  double& terms = sums_[token.sequence].terms;
  terms += term(token).value;
  if (sum_of(options_) == SequenceSum::kWeight && options_.sampler_correction != SamplerCorrection::kNone) {
    terms += bounded_log_weight(std::log(sampler_correction(options_, token.sampler_log_ratio)));
  }
}

void PolicyRatios::set_ratio(PolicyToken& token) const {
  if (!sums_.empty()) token.sequence_sum = sums_[token.sequence].terms;
  double w = token.log_ratio;
  if (are_shared()) {
    w = token.sequence_sum;
    if (sum_of(options_) != SequenceSum::kSum) w /= token.sequence_tokens;
  }
  const WithSlope ratio = bounded_exp(w, clamp_);
  token.ratio = ratio.value;
  token.ratio_slope = ratio.slope;
}

double PolicyRatios::shared_gradient(const PolicyToken& token) const {
  if (term(token).slope == 0) return -0.0;  // unlike 0.0, it keeps the sign of a -0.0 that it is added to
  const double by_w = sums_[token.sequence].by_w;
  return sum_of(options_) == SequenceSum::kSum ? by_w : by_w / token.sequence_tokens;
}

bool is_sequence_level(SamplerCorrection correction) {
  return correction == SamplerCorrection::kSequenceTruncate || correction == SamplerCorrection::kSequenceMask ||
         correction == SamplerCorrection::kGeometricMask;
}

TrustRegion trust_region_of(const PolicyLoss& options) {
  return options.trust_region == TrustRegion::kDefault ? row_of(options.loss_type).trust_region : options.trust_region;
}

PolicyWeights::PolicyWeights(const PolicyLoss& options, const PolicyBatch& batch)
    : options_(options),
      behaviour_is_old_(batch.sampling.empty()),
      region_(batch.old.empty() ? TrustRegion::kNone : trust_region_of(options)),
      correction_(options.sampler_correction) {
  // The weight of a sequence includes the correction.
  if (row_of(options.loss_type).sequence_sum == SequenceSum::kWeight) correction_ = SamplerCorrection::kNone;
  if (options.off_policy_mask_threshold || is_sequence_level(correction_)) sums_.resize(batch.tokens.counts.size());
  if (!options.m2_threshold) return;
  dropped_.assign(batch.tokens.targets.size(), false);
  if (batch.old.empty()) return;
  core::Array<PolicyToken> tokens;
  for (const int64_t row : batch.rows()) tokens.push_back(batch.token(row, nullptr));
  drop_large_moments(tokens);
}

void PolicyWeights::add(const PolicyToken& token) {
  if (sums_.empty()) return;
  Sums& sums = sums_[token.sequence];
  sums.sampler += token.sampler_log_ratio;
  const double behaviour = behaviour_is_old_ ? token.old_logp : token.sampling_logp;
  if (!std::isnan(behaviour)) sums.drift += behaviour - token.logp;
}

void PolicyWeights::find_top(std::span<const PolicyToken> tokens) {
  core::Array<double> entropies;
  entropies.reserve(tokens.size());
  for (const PolicyToken& token : tokens) entropies.push_back(token.entropy);
  top_tokens_ = static_cast<double>(entropies.size());
  // NaN cannot be sorted; nothing is dropped, so that the loss becomes NaN.
  if (entropies.empty() || std::any_of(entropies.begin(), entropies.end(), [](double h) { return std::isnan(h); })) {
    return;
  }
  std::sort(entropies.begin(), entropies.end());
  // Not (1 − q)(n − 1), because in floating point 1 − 0.7 is above 0.3, which would drop the token at the
  // quantile.
  const double last = static_cast<double>(entropies.size() - 1);
  const double at = last - options_.top_entropy_quantile * last;
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, entropies.size() - 1);
  least_entropy_ = entropies[below] + (at - static_cast<double>(below)) * (entropies[above] - entropies[below]);
  top_tokens_ = static_cast<double>(
      std::count_if(entropies.begin(), entropies.end(), [&](double entropy) { return is_top(entropy); }));
}

// M2PO drops tokens until the mean of (old − sampling)² over the rest is below the threshold, but never all.
void PolicyWeights::drop_large_moments(std::span<const PolicyToken> tokens) {
  struct Moment {
    double square;
    size_t row;
  };
  core::Array<Moment> moments;
  moments.reserve(tokens.size());
  for (const PolicyToken& token : tokens) {
    const double drift = token.sampler_log_ratio;
    if (std::isnan(drift)) return;  // NaN cannot be sorted; nothing is dropped, so that the loss becomes NaN
    moments.push_back({drift * drift, token.row});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.square != b.square ? a.square < b.square : a.row > b.row;
  });
  // Keeps as many tokens as possible, in ascending order.
  double sum = 0;
  size_t kept = 1;
  for (size_t k = 0; k < moments.size(); ++k) {
    sum += moments[k].square;
    if (sum / static_cast<double>(k + 1) < *options_.m2_threshold) kept = k + 1;
  }
  for (size_t k = kept; k < moments.size(); ++k) dropped_[moments[k].row] = true;
}

// Returns whether the policy is close enough to old_logps at this token. With a NaN the token is kept, so
// that the loss becomes NaN.
bool PolicyWeights::is_near(const PolicyToken& t) const {
  if (region_ == TrustRegion::kNone) return true;
  const double p = std::exp(t.logp), old_p = std::exp(t.old_logp), moved = p - old_p;
  const double by_default = region_ == TrustRegion::kTvBoth ? 0.1 : 0.2;
  const double low = options_.trust_region_low.value_or(by_default);
  const double high = options_.trust_region_high.value_or(by_default);
  if (region_ == TrustRegion::kTvBoth) return !(moved > high || moved < -low);
  if (region_ == TrustRegion::kTv) return !(t.advantage > 0 ? moved > high : moved < -low);
  if (t.advantage > 0 ? moved <= 0 : moved >= 0) return true;
  // KL of two outcomes; the constant added to 1 − p is verl's. max() corrects a 1 − p that rounding made
  // negative.
  constexpr double kRest = 1e-8;
  const double rest = std::max(0.0, -std::expm1(t.logp)), old_rest = std::max(0.0, -std::expm1(t.old_logp));
  const double kl = old_p * (t.old_logp - t.logp) + old_rest * std::log((old_rest + kRest) / (rest + kRest));
  return !(kl > (t.advantage > 0 ? high : low));
}

double PolicyWeights::of(const PolicyToken& t) const {
  if (!is_top(t.entropy)) return 0;
  if (options_.off_policy_mask_threshold && t.advantage < 0 &&
      sums_[t.sequence].drift / t.sequence_tokens > *options_.off_policy_mask_threshold) {
    return 0;
  }
  if (!dropped_.empty() && dropped_[t.row]) return 0;
  if (!is_near(t)) return 0;
  switch (correction_) {
    case SamplerCorrection::kNone:
      return 1;
    case SamplerCorrection::kTokenTruncate:
    case SamplerCorrection::kTokenMask:
      return sampler_correction(options_, t.sampler_log_ratio);
    case SamplerCorrection::kSequenceTruncate:
    case SamplerCorrection::kSequenceMask:
      return sampler_correction(options_, sums_[t.sequence].sampler);
    case SamplerCorrection::kGeometricMask:
      break;
  }
  const double mean_log_ratio = sums_[t.sequence].sampler / t.sequence_tokens;
  return sampler_correction(options_, mean_log_ratio) == 0 ? 0 : bounded_exp(t.sampler_log_ratio, kMostLogRatio).value;
}

double add_kl(const PolicyToken& token, const PolicyLoss& options, PolicyTokenLoss& out) {
  const double d = token.ref_logp - token.logp, c = options.log_ratio_clamp.value_or(kMostLogRatio);
  const double bounded = std::clamp(d, -c, c);
  const double k3 = std::expm1(bounded) - bounded;
  WithSlope kl;  // by logp
  switch (options.kl_estimator) {
    case KlEstimator::kK1:
      kl = {-d, 1};
      break;
    case KlEstimator::kK2:
      kl = {d * d / 2, -d};
      break;
    case KlEstimator::kK3:
      kl = {k3, d < -c || d > c ? 0 : -std::expm1(d)};
      break;
    case KlEstimator::kAbs:
      kl = {std::abs(d), d > 0 ? -1 : d < 0 ? 1 : d};
      break;
    case KlEstimator::kK1Plus:
      kl = {-d, -d};
      break;
    case KlEstimator::kK3Plus:
      kl = {k3, -d};
      break;
  }
  const double correction = options.use_bias_correction_kl ? token.ratio : 1;
  out.loss += options.beta * kl.value * correction;
  out.by_logp += options.beta * kl.slope * correction;
  if (options.use_bias_correction_kl) out.by_ratio += options.beta * kl.value;
  return kl.value * correction;
}

void add_sampler_penalty(const PolicyToken& token, const PolicyLoss& options, PolicyTokenLoss& out) {
  if (options.sampler_penalty == 0 || std::isnan(token.sampling_logp)) return;
  const double drift = token.logp - token.sampling_logp;
  out.loss += options.sampler_penalty * drift * drift;
  out.by_logp += 2 * options.sampler_penalty * drift;
}

}  // namespace logitless::loss
