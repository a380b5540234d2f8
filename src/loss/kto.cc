// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/kto.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check_fields.h"

namespace logitless::loss {

void check_kto_options(const KtoLoss& options) { core::check_fields(options); }

SequenceLoss::SequenceLoss(const KtoLoss& options, SequenceTokens tokens, std::string_view rows_name,
                           ranks::Totals totals)
    : options_(options), tokens_(std::move(tokens)), totals_(totals) {
  using core::fail_if;
  const int64_t sequences = tokens_.sequences(), labels = static_cast<int64_t>(options.labels.size());
  const bool fits = options.loss_type == KtoLossType::kA2po;
  const char* loss_type = name_of(options.loss_type);
  fail_if(labels != sequences && !(fits && labels == 0), "labels ", core::HasEntries(labels), " but ", rows_name,
          " holds ", sequences, " sequences");
  core::check_flags("labels", options.labels);
  const ConstVector kl_logps = core::vector_of("kl_logps", options.kl_logps);
  const ConstVector kl_ref_logps = core::vector_of("kl_ref_logps", options.kl_ref_logps);
  fail_if(kl_logps.size != kl_ref_logps.size, "kl_logps ", core::HasEntries(kl_logps.size), " but kl_ref_logps has ",
          kl_ref_logps.size);
  for (const auto& [name, weight] :
       {std::pair("desirable_weight", options.desirable_weight), {"undesirable_weight", options.undesirable_weight}}) {
    fail_if(labels == 0 && sequences > 0 && weight != 1, name, " = ", weight, " is set but labels is empty");
  }
  fail_if(kl_logps.size != 0 && options.loss_type != KtoLossType::kKto, "kl_logps is given but has no meaning for ",
          loss_type);
  fail_if(options.bco_delta != 0 && options.loss_type != KtoLossType::kBco, "bco_delta = ", options.bco_delta,
          " has no meaning for ", loss_type);
  fail_if(!fits && options.reward_targets.count() != 0, "reward_targets is given but has no meaning for ", loss_type);
  if (options.sequence_weights.count() != 0) {
    weights_ = sequence_values("sequence_weights", options.sequence_weights, tokens_, loss_type);
    for (size_t s = 0; s < weights_.size(); ++s) {
      fail_if(weights_[s] < 0, "sequence_weights[", s, "] = ", weights_[s], " must be at least 0");
    }
  }
  if (fits) targets_ = sequence_values("reward_targets", options.reward_targets, tokens_, loss_type);
  for (int64_t j = 0; j < kl_logps.size; ++j) {
    kl_ += finite_entry("kl_logps", kl_logps, j) - finite_entry("kl_ref_logps", kl_ref_logps, j);
  }
  double kl_count = static_cast<double>(kl_logps.size);
  desirable_.assign(static_cast<size_t>(sequences), true);
  for (size_t s = 0; s < options.labels.size(); ++s) desirable_[s] = options.labels[s] != 0;
  for (const int64_t count : tokens_.counts) active_ += count > 0;
  totals_.sum({&kl_, &kl_count, &active_});
  kl_ = std::max(0.0, kl_ / std::max(kl_count, 1.0));
  sums_.assign(tokens_.counts.size(), 0);
  loss_.assign(tokens_.counts.size(), 0);
}

double SequenceLoss::scale(size_t s) const {
  return options_.average_log_prob ? 1 / std::max(1.0, tokens_.count(s)) : 1;
}

// Returns the loss of a sequence (docs/losses-preference.md, "Single sequences").
WithSlope SequenceLoss::value(size_t s) const {
  const double beta = options_.beta, sign = desirable_[s] ? 1 : -1;
  const double weight =
      (desirable_[s] ? options_.desirable_weight : options_.undesirable_weight) * (weights_.empty() ? 1 : weights_[s]);
  if (weight == 0 && !std::isnan(log_ratio(s))) return {};  // 0 · ∞ is 0 here.
  switch (options_.loss_type) {
    case KtoLossType::kKto:
    case KtoLossType::kApoZeroUnpaired: {
      const double z = sign * beta * (log_ratio(s) - kl_);
      return {weight * sigmoid(-z), -weight * sigmoid(z) * sigmoid(-z) * sign * beta};
    }
    case KtoLossType::kBco: {
      const double z = sign * (beta * log_ratio(s) - options_.bco_delta);
      return {-weight * log_sigmoid(z), -weight * sigmoid(-z) * sign * beta};
    }
    case KtoLossType::kA2po: {
      const double error = beta * log_ratio(s) - targets_[s];
      return {weight * error * error, weight * 2 * error * beta};
    }
  }
  return {};
}

void SequenceLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    sums_[static_cast<size_t>(tokens_.sequence[i])] += stats.logp[i];
  }
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const auto s = static_cast<size_t>(tokens_.sequence[i]);
    const WithSlope of_sequence = value(s);
    loss_[s] = of_sequence.value;
    grads.logp[i] = options_.loss_scale / active_ * of_sequence.slope * scale(s);
  }
}

KtoResult SequenceLoss::result(const TokenStats& stats, const Plan& plan) const {
  KtoResult out;
  out.plan = plan;
  out.sequence_losses.assign(loss_.begin(), loss_.end());
  out.sequence_logps.assign(sums_.begin(), sums_.end());
  out.per_token_logps = stats.logp;
  KtoMetrics& metrics = out.metrics;
  metrics.kl = kl_;
  double reward[2] = {0, 0}, logp[2] = {0, 0}, count[2] = {0, 0}, tokens = tokens_.total();
  double entropy = options_.want_entropy ? tokens_.sum(stats.entropy) : 0;
  for (size_t s = 0; s < sums_.size(); ++s) {
    out.sequence_logps[s] *= scale(s);
    if (tokens_.counts[s] == 0) continue;
    out.loss += loss_[s];
    count[desirable_[s]] += 1;
    reward[desirable_[s]] += options_.beta * log_ratio(s);
    logp[desirable_[s]] += out.sequence_logps[s];
  }
  totals_.sum({&tokens, &entropy, &reward[0], &reward[1], &logp[0], &logp[1], &count[0], &count[1], &out.loss});
  metrics.tokens = static_cast<int64_t>(tokens);
  out.loss *= options_.loss_scale / std::max(active_, 1.0);
  metrics.desirable = static_cast<int64_t>(count[1]);
  metrics.undesirable = static_cast<int64_t>(count[0]);
  // 0 / 0 gives NaN for a kind without sequences.
  metrics.desirable_reward = reward[1] / count[1];
  metrics.undesirable_reward = reward[0] / count[0];
  metrics.margin = metrics.desirable_reward - metrics.undesirable_reward;
  metrics.desirable_logp = logp[1] / count[1];
  metrics.undesirable_logp = logp[0] / count[0];
  if (options_.want_entropy && tokens > 0) metrics.mean_entropy = entropy / tokens;
  return out;
}

}  // namespace logitless::loss
