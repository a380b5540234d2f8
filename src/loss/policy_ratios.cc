// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The importance ratios of tokens and sequences (docs/losses.md, 1.1).
#include <algorithm>
#include <cmath>

#include "loss/policy_stages.h"

namespace logitless::loss {

namespace {

SequenceSum sum_of(const PolicyLoss& options) {
  if (options.importance_sampling_level == ImportanceLevel::kSequence) return SequenceSum::kMean;
  return row_of(options.loss_type).sequence_sum;
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
  if (term(token).slope == 0) return 0;
  const double by_w = sums_[token.sequence].by_w;
  return sum_of(options_) == SequenceSum::kSum ? by_w : by_w / token.sequence_tokens;
}

}  // namespace logitless::loss
