// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/checks.h"
#include "core/field_text.h"
#include "core/store.h"
#include "loss/batch.h"

namespace logitless::loss {
namespace {

constexpr uint8_t kLow = 1;
constexpr uint8_t kHigh = 2;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_mask(SamplerCorrection c) {
  return c == SamplerCorrection::kTokenMask || c == SamplerCorrection::kSequenceMask ||
         c == SamplerCorrection::kGeometricMask;
}

}  // namespace

StatsRequest CompletionLoss::needs() const {
  return {.entropy = options_.want_entropy || options_.entropy_bonus != 0 || options_.top_entropy_quantile < 1};
}

bool CompletionLoss::coupled_ratio() const {
  return variant().sequence_ratio != SequenceRatio::kNone ||
         options_.importance_sampling_level == ImportanceLevel::kSequence;
}

// Returns the option that makes a token's loss depend on all tokens of the batch, or "".
std::string CompletionLoss::coupling_of_batch() const {
  if (options_.top_entropy_quantile < 1) return "top_entropy_quantile = " + text_of(options_.top_entropy_quantile);
  if (variant().covariance != CovarianceRule::kNone) return std::string("loss_type = ") + name_of(options_.loss_type);
  return options_.m2_threshold ? "m2_threshold = " + text_of(options_.m2_threshold) : "";
}

// Returns the factor of ℓ of this row in the loss, without loss_scale.
double CompletionLoss::normaliser(int64_t row) const {
  const auto count = [](double n) { return std::max(n, 1.0); };
  const double sequences = options_.num_sequences.value_or(count(batch_));
  switch (aggregation_of(options_)) {
    case PolicyAggregation::kTokenMean:
      return 1 / count(options_.num_items_in_batch.value_or(tokens_));
    case PolicyAggregation::kTokenSum:
      return 1;
    case PolicyAggregation::kSeqMeanTokenSum:
      return 1 / sequences;
    case PolicyAggregation::kSeqMeanTokenMean:
      return 1 / (sequences * sequences_[static_cast<size_t>(sequence_[static_cast<size_t>(row)])].tokens);
    case PolicyAggregation::kSeqMeanTokenSumNorm:
      return 1 / (sequences * static_cast<double>(*options_.max_completion_length));
    case PolicyAggregation::kDefault:
      break;
  }
  return 0;
}

// Returns δ. On-policy it is exactly 0, even if logp is −∞, but NaN for NaN.
double CompletionLoss::token_log_ratio(size_t i, double logp) const {
  if (old_.empty()) return std::isnan(logp) ? logp : 0;
  return logp - old_[i];
}

double CompletionLoss::sampler_log_ratio(size_t i, double logp) const {
  return std::isnan(sampling_[i]) ? 0 : old_logp(i, logp) - sampling_[i];
}

// Returns the sampler correction of exp(log_ratio).
double CompletionLoss::corrected(double log_ratio) const {
  const double r = bounded_exp(log_ratio, kMostLogRatio);
  const double low = options_.sampler_clip_min.value_or(0);
  const double high = options_.sampler_clip_max.value_or(kInfinity);
  if (is_mask(options_.sampler_correction)) return r < low || r > high ? 0 : r;
  return std::clamp(r, low, high);
}

bool CompletionLoss::teacher_is_against_policy() const {
  return options_.teacher_against == TeacherAgainst::kCurrent ||
         (options_.teacher_against == TeacherAgainst::kOld && old_.empty());
}

// Adds the teacher's discounted log ratios to the advantages, for whole sequences, or without a discount for
// any rows; `rows` are increasing. Without statistics, compares with old_logps or sampling_logps.
void CompletionLoss::add_teacher(std::span<const int64_t> rows, const TokenStats* stats) {
  double ahead = 0;  // Σ γ^(t − i) ratio_t over the rows t >= i of the sequence of i, the last row seen
  int64_t before = -1;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const auto i = static_cast<size_t>(*row);
    const double against = stats                                              ? stats->logp[pick_of(i)]
                           : options_.teacher_against == TeacherAgainst::kOld ? old_[i]
                                                                              : sampling_[i];
    const double ratio = !stats && std::isnan(against) ? 0 : teacher_[i] - against;
    teacher_kl_[i] = -ratio;
    const bool follows = before >= 0 && sequence_[static_cast<size_t>(before)] == sequence_[i];
    if (!follows || options_.teacher_discount == 0) ahead = 0;
    if (ahead != 0) ahead *= std::pow(options_.teacher_discount, static_cast<double>(before - *row));
    ahead += ratio;
    advantage_[i] += options_.teacher_weight * ahead;
    before = *row;
  }
}

// Returns a token's contribution to the log ratio of its sequence, and its slope by logp.
CompletionLoss::Ratio CompletionLoss::sequence_term(size_t i, double logp) const {
  const double log_ratio = token_log_ratio(i, logp), a = advantage_[i];
  if (variant().sequence_ratio != SequenceRatio::kClippedMean) return {log_ratio, 1};
  const double most = epsilon_high(options_), least = -epsilon_low(options_);
  if (a > 0 && log_ratio > most) return {most, 0};
  if (a < 0 && log_ratio < least) return {least, 0};
  return a == 0 ? Ratio{0, 0} : Ratio{log_ratio, 1};
}

void CompletionLoss::add_to_sequence(int64_t row, double logp) {
  const auto i = static_cast<size_t>(row);
  Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  const double log_ratio = token_log_ratio(i, logp);
  s.log_ratio += sequence_term(i, logp).value;
  if (!sampling_.empty()) s.sampler += sampler_log_ratio(i, logp);
  if (options_.off_policy_mask_threshold) {
    const double behaviour = sampling_.empty() ? old_logp(i, logp) : sampling_[i];
    if (!std::isnan(behaviour)) s.drift += behaviour - logp;
  }
  if (variant().has_weight_of_sequence) {
    s.vespo += std::clamp(log_ratio, -clamp_bound(), clamp_bound());
    if (options_.sampler_correction != SamplerCorrection::kNone) {
      s.vespo += std::clamp(std::log(corrected(sampler_log_ratio(i, logp))), kLeastLogWeight, kMostLogWeight);
    }
  }
}

CompletionLoss::Ratio CompletionLoss::ratio(size_t i, double logp) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  double w = token_log_ratio(i, logp);
  if (variant().sequence_ratio == SequenceRatio::kSum) {
    w = s.log_ratio;
  } else if (coupled_ratio()) {
    w = s.log_ratio / s.tokens;
  }
  const double c = clamp_bound();
  const double value = bounded_exp(w, c);
  return {value, w < -c || w > c ? 0 : value};  // both are NaN for NaN
}

PolicyTokenLoss CompletionLoss::token_loss(size_t i, double logp, double ratio) const {
  const double a = advantage_[i];
  // Also if logp is −inf: 0 · ∞ is 0 here.
  if (a == 0 && !variant().has_loss_without_advantage) return {};
  const auto s = static_cast<size_t>(sequence_[i]);
  return variant().token_loss({.advantage = a,
                               .logp = logp,
                               .log_ratio = token_log_ratio(i, logp),
                               .ratio = ratio,
                               .log_sequence_weight = sequences_[s].vespo,
                               .is_good = !good_.empty() && good_[s],
                               .is_chosen = !marks_.empty() && (marks_[i] & kChosen) != 0},
                              options_);
}

// Returns whether the policy is close enough to old_logps at this token. With a NaN the token is kept, so
// that the loss shows it.
bool CompletionLoss::is_trusted(size_t i, double logp) const {
  const TrustRegion region = trust_region_of(options_);
  if (region == TrustRegion::kNone || old_.empty()) return true;
  const double moved = std::exp(logp) - std::exp(old_[i]), a = advantage_[i];
  const double by_default = region == TrustRegion::kTvBoth ? 0.1 : 0.2;
  const double low = options_.trust_region_low.value_or(by_default);
  const double high = options_.trust_region_high.value_or(by_default);
  if (region == TrustRegion::kTvBoth) return !(moved > high || moved < -low);
  if (region == TrustRegion::kTv) return !(a > 0 ? moved > high : moved < -low);
  if (a > 0 ? moved <= 0 : moved >= 0) return true;
  // KL of two outcomes; the constant added to 1 − p is verl's. max() corrects a 1 − p that rounding made
  // negative.
  constexpr double kRest = 1e-8;
  const double rest = std::max(0.0, -std::expm1(logp)), old_rest = std::max(0.0, -std::expm1(old_[i]));
  const double kl = std::exp(old_[i]) * (old_[i] - logp) + old_rest * std::log((old_rest + kRest) / (rest + kRest));
  return !(kl > (a > 0 ? high : low));
}

// Returns keep · near · m2 · r of docs/losses.md, 1.3.
double CompletionLoss::factor(size_t i, double logp) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  if (options_.off_policy_mask_threshold && advantage_[i] < 0 &&
      s.drift / s.tokens > *options_.off_policy_mask_threshold) {
    return 0;
  }
  if (!marks_.empty() && (marks_[i] & kDropped)) return 0;
  if (!is_trusted(i, logp)) return 0;
  const SamplerCorrection correction = options_.sampler_correction;
  if (correction == SamplerCorrection::kNone || variant().has_weight_of_sequence) return 1;
  if (correction != SamplerCorrection::kGeometricMask) {
    return corrected(is_sequence_level(correction) ? s.sampler : sampler_log_ratio(i, logp));
  }
  return corrected(s.sampler / s.tokens) == 0 ? 0 : bounded_exp(sampler_log_ratio(i, logp), kMostLogRatio);
}

void CompletionLoss::add_kl(size_t i, double logp, double ratio, PolicyTokenLoss& out) {
  const double d = ref_[i] - logp, c = clamp_bound();
  const double bounded = std::clamp(d, -c, c);
  const double k3 = std::expm1(bounded) - bounded;
  double kl = 0, by_logp = 0;
  switch (options_.kl_estimator) {
    case KlEstimator::kK1:
      kl = -d;
      by_logp = 1;
      break;
    case KlEstimator::kK2:
      kl = d * d / 2;
      by_logp = -d;
      break;
    case KlEstimator::kK3:
      kl = k3;
      by_logp = d < -c || d > c ? 0 : -std::expm1(d);
      break;
    case KlEstimator::kAbs:
      kl = std::abs(d);
      by_logp = d > 0 ? -1 : d < 0 ? 1 : d;
      break;
    case KlEstimator::kK1Plus:
      kl = -d;
      by_logp = -d;
      break;
    case KlEstimator::kK3Plus:
      kl = k3;
      by_logp = -d;
      break;
  }
  const double correction = options_.use_bias_correction_kl ? ratio : 1;
  out.loss += options_.beta * kl * correction;
  out.by_logp += options_.beta * by_logp * correction;
  if (options_.use_bias_correction_kl) out.by_ratio += options_.beta * kl;
  kl_[i] = kl * correction;
}

void CompletionLoss::note_clips(size_t i, double logp, double ratio) {
  const double a = advantage_[i];
  const double most = epsilon_high(options_);
  if (variant().sequence_ratio == SequenceRatio::kClippedMean) {
    const bool passes = a == 0 || sequence_term(i, logp).slope != 0;
    if (!passes) clips_[i] = a < 0 ? kLow : kHigh;
    return;
  }
  if (variant().is_truncated()) {
    if (ratio < least_ratio(options_) && a < 0) clips_[i] = kLow;
    if (ratio > most && a > 0) clips_[i] = kHigh;
  } else if (variant().is_clipped_surrogate()) {
    const double bounded = std::min(ratio, options_.delta.value_or(kInfinity));
    if (bounded < least_ratio(options_) && a < 0) clips_[i] = kLow;
    if (bounded > 1 + most && a > 0) clips_[i] = kHigh;
  }
}

void CompletionLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  if (!teacher_.empty() && teacher_is_against_policy()) add_teacher(rows, &stats);
  for (const int64_t row : rows) add_to_sequence(row, stats.logp[pick_of(static_cast<size_t>(row))]);
  if (options_.top_entropy_quantile < 1) find_entropy_threshold(rows, stats);
  if (moments_need_policy()) drop_large_moments(rows, &stats);
  if (variant().covariance != CovarianceRule::kNone) choose_by_covariance(rows, stats);
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const double logp = stats.logp[pick_of(i)];
    const Ratio r = ratio(i, logp);
    PolicyTokenLoss token = token_loss(i, logp, r.value);
    const bool top = options_.top_entropy_quantile == 1 || !(stats.entropy[i] < entropy_threshold_);
    const double weight = top ? factor(i, logp) : 0;
    token = weight == 0 ? PolicyTokenLoss{}
                        : PolicyTokenLoss{token.loss * weight, token.by_logp * weight, token.by_ratio * weight};
    if (options_.beta != 0) add_kl(i, logp, r.value, token);
    if (options_.sampler_penalty != 0 && !std::isnan(sampling_[i])) {
      const double drift = logp - sampling_[i];
      token.loss += options_.sampler_penalty * drift * drift;
      token.by_logp += 2 * options_.sampler_penalty * drift;
    }
    note_clips(i, logp, r.value);
    loss_[i] = token.loss;
    ratio_[i] = r.value;
    const double scale = normaliser(row) * options_.loss_scale;
    double& by_logp = grads.logp[pick_of(i)];
    by_logp = token.by_logp * scale;
    if (options_.positive_nll_weight != 0 && good_[static_cast<size_t>(sequence_[i])]) {
      by_logp -= options_.loss_scale * options_.positive_nll_weight / good_tokens_;
    }
    const double by_log_ratio = token.by_ratio * r.slope * scale;
    if (coupled_ratio()) {
      sequences_[static_cast<size_t>(sequence_[i])].by_log_ratio += by_log_ratio;
    } else {
      by_logp += by_log_ratio;
    }
    if (options_.entropy_bonus != 0) {
      grads.entropy[i] = top ? -options_.loss_scale * options_.entropy_bonus / std::max(kept_tokens_, 1.0) : 0;
    }
  }
  if (!coupled_ratio()) return;
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
    const double slope = sequence_term(i, stats.logp[pick_of(i)]).slope;
    if (slope == 0) continue;
    grads.logp[pick_of(i)] +=
        variant().sequence_ratio == SequenceRatio::kSum ? s.by_log_ratio : s.by_log_ratio / s.tokens;
  }
}

PolicyResult CompletionLoss::result(const TokenStats& stats, const Plan& plan) const {
  PolicyResult out;
  out.plan = plan;
  out.per_token_loss.assign(loss_.begin(), loss_.end());
  out.per_token_logps.assign(targets_.size(), 0);
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i] != kNoTarget) out.per_token_logps[i] = stats.logp[pick_of(i)];
  }
  PolicyMetrics& metrics = out.metrics;
  metrics.tokens = static_cast<int64_t>(tokens_);
  if (tokens_ == 0) return out;
  // A ratio shared by a whole sequence counts once per sequence.
  const bool once = coupled_ratio() && !advantage_per_token_;
  const bool entropies = needs().entropy;
  double weights = 0, ratio = 0, low = 0, high = 0, kl = 0, entropy = 0, kept_entropy = 0, logp = 0, teacher_kl = 0,
         good_logp = 0;
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i] == kNoTarget) continue;
    const double weight = once ? 1 / sequences_[static_cast<size_t>(sequence_[i])].tokens : 1;
    weights += weight;
    ratio += weight * ratio_[i];
    if (clips_[i] & kLow) low += weight;
    if (clips_[i] & kHigh) high += weight;
    if (!kl_.empty()) kl += kl_[i];
    if (!teacher_kl_.empty()) teacher_kl += teacher_kl_[i];
    if (entropies) {
      entropy += stats.entropy[i];
      const bool top = options_.top_entropy_quantile == 1 || !(stats.entropy[i] < entropy_threshold_);
      if (top) kept_entropy += stats.entropy[i];
    }
    logp += out.per_token_logps[i];
    if (!good_.empty() && good_[static_cast<size_t>(sequence_[i])]) good_logp += out.per_token_logps[i];
    out.loss += loss_[i] * normaliser(static_cast<int64_t>(i));
  }
  totals_.sum({&weights, &ratio, &low, &high, &kl, &entropy, &kept_entropy, &logp, &teacher_kl, &good_logp, &out.loss});
  if (options_.positive_nll_weight != 0 && good_tokens_ != 0) {
    out.loss -= options_.positive_nll_weight * good_logp / good_tokens_;
  }
  if (options_.entropy_bonus != 0) out.loss -= options_.entropy_bonus * kept_entropy / std::max(kept_tokens_, 1.0);
  out.loss *= options_.loss_scale;
  const double tokens = tokens_;
  metrics.mean_ratio = ratio / weights;
  metrics.clip_fraction_low = low / weights;
  metrics.clip_fraction_high = high / weights;
  metrics.clip_fraction = (low + high) / weights;
  if (options_.beta != 0) metrics.mean_kl = kl / tokens;
  if (entropies) metrics.mean_entropy = entropy / tokens;
  metrics.mean_logp = logp / tokens;
  if (!teacher_.empty()) metrics.mean_teacher_kl = teacher_kl / tokens;
  return out;
}

}  // namespace logitless::loss
