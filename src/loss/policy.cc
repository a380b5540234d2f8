// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/checks.h"
#include "core/store.h"
#include "loss/batch.h"

namespace logitless::loss {
namespace {

constexpr uint8_t kLow = 1;
constexpr uint8_t kHigh = 2;

bool is_mask(SamplerCorrection c) {
  return c == SamplerCorrection::kTokenMask || c == SamplerCorrection::kSequenceMask;
}
}  // namespace

StatsRequest PolicyLoss::needs() const {
  return {.entropy = options_.want_entropy || options_.entropy_bonus != 0 || options_.top_entropy_quantile < 1};
}

bool PolicyLoss::coupled_ratio() const {
  return variant().has_ratio_of_sequence || options_.importance_sampling_level == ImportanceLevel::kSequence;
}

// Returns what ℓ of this row is multiplied with on its way into the loss, apart from loss_scale.
double PolicyLoss::normaliser(int64_t row) const {
  const auto count = [](double n) { return std::max(n, 1.0); };
  const double batch = count(batch_);
  const double tokens = count(tokens_);
  switch (variant().divisor) {
    case PolicyDivisor::kSequenceTokens:
      return 1 / (batch * sequences_[static_cast<size_t>(sequence_[static_cast<size_t>(row)])].tokens);
    case PolicyDivisor::kTokens:
      return 1 / tokens;
    case PolicyDivisor::kMaxCompletionLength:
      return 1 / (batch * static_cast<double>(*options_.max_completion_length));
    case PolicyDivisor::kItems:
      return 1 / count(options_.num_items_in_batch.value_or(tokens));
    case PolicyDivisor::kSequences:
      return 1 / batch;
  }
  return 0;
}

// Returns δ. On-policy it is exactly 0, also where logp is −∞, but a NaN stays NaN.
double PolicyLoss::token_log_ratio(size_t i, double logp) const {
  if (old_.empty()) return std::isnan(logp) ? logp : 0;
  return logp - old_[i];
}

double PolicyLoss::sampler_log_ratio(size_t i, double logp) const {
  return std::isnan(sampling_[i]) ? 0 : old_logp(i, logp) - sampling_[i];
}

// Returns the sampler correction of exp(log_ratio).
double PolicyLoss::corrected(double log_ratio) const {
  const double r = bounded_exp(log_ratio, kMostLogRatio);
  const double low = options_.sampler_clip_min.value_or(0);
  const double high = options_.sampler_clip_max.value_or(std::numeric_limits<double>::infinity());
  if (is_mask(options_.sampler_correction)) return r < low || r > high ? 0 : r;
  return std::clamp(r, low, high);
}

bool PolicyLoss::teacher_is_against_policy() const {
  return options_.teacher_against == TeacherAgainst::kCurrent ||
         (options_.teacher_against == TeacherAgainst::kOld && old_.empty());
}

// Adds the teacher's discounted log ratios to the advantages of whole sequences, or, without a discount, of
// any rows. They increase. Without statistics the ratios are against what was given.
void PolicyLoss::add_teacher(std::span<const int64_t> rows, const TokenStats* stats) {
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

void PolicyLoss::add_to_sequence(int64_t row, double logp) {
  const auto i = static_cast<size_t>(row);
  Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  const double log_ratio = token_log_ratio(i, logp);
  s.log_ratio += log_ratio;
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

// Finds the (1 − top_entropy_quantile) quantile of the entropies, interpolated linearly.
void PolicyLoss::find_entropy_threshold(std::span<const int64_t> rows, const TokenStats& stats) {
  core::Array<double> entropies;
  entropies.reserve(rows.size());
  for (const int64_t row : rows) entropies.push_back(stats.entropy[static_cast<size_t>(row)]);
  kept_tokens_ = 0;
  if (entropies.empty()) return;
  if (std::any_of(entropies.begin(), entropies.end(), [](double entropy) { return std::isnan(entropy); })) {
    // NaN cannot be sorted; nothing is dropped, so that the loss shows it.
    entropy_threshold_ = std::numeric_limits<double>::quiet_NaN();
    kept_tokens_ = static_cast<double>(entropies.size());
    return;
  }
  std::sort(entropies.begin(), entropies.end());
  // This is not written (1 − q)(n − 1), because 1 − 0.7 is above 0.3 and would drop the token at the
  // quantile.
  const double last = static_cast<double>(entropies.size() - 1);
  const double at = last - options_.top_entropy_quantile * last;
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, entropies.size() - 1);
  entropy_threshold_ = entropies[below] + (at - static_cast<double>(below)) * (entropies[above] - entropies[below]);
  for (const double entropy : entropies) kept_tokens_ += entropy >= entropy_threshold_;
}

PolicyLoss::Ratio PolicyLoss::ratio(size_t i, double logp) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  double w = token_log_ratio(i, logp);
  if (variant().has_ratio_of_sequence) {
    w = s.log_ratio;
  } else if (coupled_ratio()) {
    w = s.log_ratio / s.tokens;
  }
  const double c = clamp_bound();
  const double value = bounded_exp(w, c);
  return {value, w < -c || w > c ? 0 : value};  // both are NaN for NaN
}

PolicyTokenLoss PolicyLoss::token_loss(size_t i, double logp, double ratio) const {
  const double a = advantage_[i];
  if (a == 0) return {};  // This holds also where logp is −inf: 0 · ∞ is 0 here.
  return variant().token_loss({.advantage = a,
                               .logp = logp,
                               .ratio = ratio,
                               .log_sequence_weight = sequences_[static_cast<size_t>(sequence_[i])].vespo},
                              options_);
}

// Returns keep · r of docs/losses.md, 1.3.
double PolicyLoss::factor(size_t i, double logp) const {
  const Sequence& s = sequences_[static_cast<size_t>(sequence_[i])];
  if (options_.off_policy_mask_threshold && advantage_[i] < 0 &&
      s.drift / s.tokens > *options_.off_policy_mask_threshold) {
    return 0;
  }
  if (options_.sampler_correction == SamplerCorrection::kNone || variant().has_weight_of_sequence) return 1;
  return corrected(is_sequence_level(options_.sampler_correction) ? s.sampler : sampler_log_ratio(i, logp));
}

void PolicyLoss::add_kl(size_t i, double logp, double ratio, PolicyTokenLoss& out) {
  const double d = ref_[i] - logp;
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
    case KlEstimator::kK3: {
      const double bounded = std::clamp(d, -clamp_bound(), clamp_bound());
      kl = std::expm1(bounded) - bounded;
      by_logp = d < -clamp_bound() || d > clamp_bound() ? 0 : -std::expm1(d);
      break;
    }
  }
  const double correction = options_.use_bias_correction_kl ? ratio : 1;
  out.loss += options_.beta * kl * correction;
  out.by_logp += options_.beta * by_logp * correction;
  if (options_.use_bias_correction_kl) out.by_ratio += options_.beta * kl;
  kl_[i] = kl * correction;
}

void PolicyLoss::note_clips(size_t i, double ratio) {
  const double a = advantage_[i];
  const double most = epsilon_high(options_);
  if (variant().is_truncated()) {
    if (ratio > most && a > 0) clips_[i] = kHigh;
  } else if (variant().is_clipped_surrogate()) {
    const double bounded = std::min(ratio, options_.delta.value_or(std::numeric_limits<double>::infinity()));
    if (bounded < least_ratio(options_) && a < 0) clips_[i] = kLow;
    if (bounded > 1 + most && a > 0) clips_[i] = kHigh;
  }
}

void PolicyLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  if (!teacher_.empty() && teacher_is_against_policy()) add_teacher(rows, &stats);
  for (const int64_t row : rows) add_to_sequence(row, stats.logp[pick_of(static_cast<size_t>(row))]);
  if (options_.top_entropy_quantile < 1) find_entropy_threshold(rows, stats);
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
    note_clips(i, r.value);
    loss_[i] = token.loss;
    ratio_[i] = r.value;
    const double scale = normaliser(row) * options_.loss_scale;
    double& by_logp = grads.logp[pick_of(i)];
    by_logp = token.by_logp * scale;
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
    grads.logp[pick_of(i)] += variant().has_ratio_of_sequence ? s.by_log_ratio : s.by_log_ratio / s.tokens;
  }
}

PolicyResult PolicyLoss::result(const TokenStats& stats, const Plan& plan) const {
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
  // A ratio that a whole sequence shares counts once a sequence.
  const bool once = coupled_ratio() && !advantage_per_token_;
  const bool entropies = needs().entropy;
  double weights = 0, ratio = 0, low = 0, high = 0, kl = 0, entropy = 0, kept_entropy = 0, logp = 0, teacher_kl = 0;
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
    out.loss += loss_[i] * normaliser(static_cast<int64_t>(i));
  }
  totals_.sum({&weights, &ratio, &low, &high, &kl, &entropy, &kept_entropy, &logp, &teacher_kl, &out.loss});
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
