// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/policy.h"

#include <algorithm>

#include "core/checks.h"

namespace logitless::loss {
namespace {

// Throws InvalidInput for an option that makes a token's loss depend on all tokens of the batch.
void check_is_split(const PolicyLoss& o) {
  constexpr const char* kRule = " needs the whole batch, which ranks.data splits";
  core::fail_if(o.top_entropy_quantile < 1, "top_entropy_quantile = ", o.top_entropy_quantile, kRule);
  core::fail_if(row_of(o.loss_type).chooses_by_covariance, "loss_type = ", name_of(o.loss_type), kRule);
  core::fail_if(o.m2_threshold.has_value(), "m2_threshold = ", o.m2_threshold.value_or(0), kRule);
}

// Returns the divisor of the sum over tokens, from the numbers of tokens and of sequences of the whole batch.
double divisor(const PolicyLoss& options, double tokens, double sequences) {
  sequences = options.num_sequences.value_or(std::max(sequences, 1.0));
  switch (aggregation_of(options)) {
    case PolicyAggregation::kTokenMean:
      return std::max(options.num_items_in_batch.value_or(tokens), 1.0);
    case PolicyAggregation::kSeqMeanTokenSum:
    case PolicyAggregation::kSeqMeanTokenMean:
      return sequences;
    case PolicyAggregation::kSeqMeanTokenSumNorm:
      return sequences * static_cast<double>(*options.max_completion_length);
    default:
      return 1;
  }
}

}  // namespace

CompletionLoss::CompletionLoss(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
                               std::string_view rows_name, ranks::Totals totals)
    : options_(options),
      totals_(totals),
      batch_(options, offsets, vocab_size, rows_name),
      ratios_(options, batch_.tokens),
      weights_(options, batch_) {
  const SequenceTokens& tokens = batch_.tokens;
  const size_t size = tokens.targets.size();
  if (totals.are_shared()) check_is_split(options);
  double sequences = 0;
  for (size_t s = 0; s < tokens.counts.size(); ++s) {
    tokens_ += tokens.count(s);
    sequences += options.count_empty_sequences || tokens.counts[s] != 0;
    if (!batch_.good.empty() && batch_.good[s]) good_tokens_ += tokens.count(s);
  }
  totals_.sum({&tokens_, &sequences, &good_tokens_});
  divisor_ = divisor(options, tokens_, sequences);
  divides_by_sequence_ = aggregation_of(options) == PolicyAggregation::kSeqMeanTokenMean;
  loss_.assign(size, 0);
  ratio_.assign(size, 0);
  clips_.assign(size, Clip::kNone);
  if (options.beta != 0) kl_.assign(size, 0);
  if (row_of(options.loss_type).chooses_by_covariance) chosen_.assign(size, false);

  const bool drops_by_policy = options.m2_threshold && batch_.old.empty();
  couples_batch_ = options.top_entropy_quantile < 1 || !chosen_.empty() || drops_by_policy;
  const bool couples_sequences = ratios_.sums_sequences() || weights_.sums_sequences() ||
                                 (options.teacher_discount != 0 && teacher_reads_policy(options));
  if (couples_sequences) groups_ = tokens.sequence;
  if (couples_batch_) groups_.assign(size, 0);
}

StatsRequest CompletionLoss::needs() const {
  return {.entropy = options_.want_entropy || options_.entropy_bonus != 0 || options_.top_entropy_quantile < 1};
}

// Passes all tokens of a group to the stages that couple them.
void CompletionLoss::couple(std::span<const int64_t> rows, const TokenStats& stats) {
  core::Array<PolicyToken> all;
  for (const int64_t row : rows) {
    const PolicyToken token = batch_.token(row, &stats);
    ratios_.add(token);
    weights_.add(token);
    if (couples_batch_) all.push_back(token);
  }
  if (options_.top_entropy_quantile < 1) weights_.find_top(all);
  if (options_.m2_threshold && batch_.old.empty()) weights_.drop_large_moments(all);
  if (chosen_.empty()) return;
  for (PolicyToken& token : all) ratios_.set_ratio(token);
  choose_by_covariance(all, options_, chosen_);
}

void CompletionLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  if (!batch_.teacher.empty() && teacher_reads_policy(options_)) batch_.add_teacher(options_, rows, &stats);
  if (!groups_.empty()) couple(rows, stats);
  for (const int64_t row : rows) {
    // The stages of ℓ.
    PolicyToken token = batch_.token(row, &stats);
    const size_t i = token.row;
    ratios_.set_ratio(token);
    token.is_chosen = !chosen_.empty() && chosen_[i];
    PolicyTokenLoss loss = policy_token_loss(token, options_);
    loss.scale(weights_.of(token));
    if (!kl_.empty()) kl_[i] = add_kl(token, options_, loss);
    add_sampler_penalty(token, options_, loss);
    loss_[i] = loss.loss;
    ratio_[i] = token.ratio;
    clips_[i] = loss.clip;

    // The gradients of the batch's loss.
    const double scale = factor(i) * options_.loss_scale;
    double& by_logp = grads.logp[batch_.pick(i)];
    by_logp = loss.by_logp * scale;
    if (options_.positive_nll_weight != 0 && token.is_good) {
      by_logp -= options_.loss_scale * options_.positive_nll_weight / good_tokens_;
    }
    const double by_log_ratio = loss.by_ratio * token.ratio_slope * scale;
    if (ratios_.are_shared()) {
      ratios_.add_gradient(token, by_log_ratio);
    } else {
      by_logp += by_log_ratio;
    }
    if (options_.entropy_bonus != 0) {
      const double share = options_.loss_scale * options_.entropy_bonus / std::max(top_tokens(), 1.0);
      grads.entropy[i] = weights_.is_top(token.entropy) ? -share : 0;
    }
  }
  if (!ratios_.are_shared()) return;
  for (const int64_t row : rows) {
    const PolicyToken token = batch_.token(row, &stats);
    grads.logp[batch_.pick(token.row)] += ratios_.shared_gradient(token);
  }
}

PolicyResult CompletionLoss::result(const TokenStats& stats, const Plan& plan) const {
  PolicyResult out;
  out.plan = plan;
  out.per_token_loss.assign(loss_.begin(), loss_.end());
  out.per_token_logps.assign(loss_.size(), 0);
  out.metrics.tokens = static_cast<int64_t>(tokens_);
  if (tokens_ == 0) return out;
  // A ratio shared by a whole sequence counts once per sequence.
  const bool once = ratios_.are_shared() && !batch_.advantage_per_token, has_entropy = needs().entropy;
  double weights = 0, ratio = 0, low = 0, high = 0, kl = 0, entropy = 0, top_entropy = 0, logp = 0, teacher_kl = 0,
         good_logp = 0;
  const SequenceTokens& tokens = batch_.tokens;
  for (size_t i = 0; i < loss_.size(); ++i) {
    if (!tokens.is_active(i)) continue;
    const double weight = once ? 1 / tokens.count(tokens.sequence[i]) : 1;
    weights += weight;
    ratio += weight * ratio_[i];
    if (clips_[i] == Clip::kLow) low += weight;
    if (clips_[i] == Clip::kHigh) high += weight;
    if (!kl_.empty()) kl += kl_[i];
    if (!batch_.teacher_kl.empty()) teacher_kl += batch_.teacher_kl[i];
    if (has_entropy) entropy += stats.entropy[i];
    if (has_entropy && weights_.is_top(stats.entropy[i])) top_entropy += stats.entropy[i];
    out.per_token_logps[i] = stats.logp[batch_.pick(i)];
    logp += out.per_token_logps[i];
    if (batch_.is_good(i)) good_logp += out.per_token_logps[i];
    out.loss += loss_[i] * factor(i);
  }
  totals_.sum({&weights, &ratio, &low, &high, &kl, &entropy, &top_entropy, &logp, &teacher_kl, &good_logp, &out.loss});
  if (options_.positive_nll_weight != 0 && good_tokens_ != 0) {
    out.loss -= options_.positive_nll_weight * good_logp / good_tokens_;
  }
  if (options_.entropy_bonus != 0) out.loss -= options_.entropy_bonus * top_entropy / std::max(top_tokens(), 1.0);
  out.loss *= options_.loss_scale;
  PolicyMetrics& metrics = out.metrics;
  metrics.mean_ratio = ratio / weights;
  metrics.clip_fraction_low = low / weights;
  metrics.clip_fraction_high = high / weights;
  metrics.clip_fraction = (low + high) / weights;
  metrics.mean_logp = logp / tokens_;
  if (options_.beta != 0) metrics.mean_kl = kl / tokens_;
  if (has_entropy) metrics.mean_entropy = entropy / tokens_;
  if (options_.teacher_weight != 0) metrics.mean_teacher_kl = teacher_kl / tokens_;
  return out;
}

}  // namespace logitless::loss
