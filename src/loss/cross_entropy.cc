// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/cross_entropy.h"

#include <cmath>

#include "core/check_fields.h"
#include "loss/math.h"

namespace logitless::loss {
StatsRequest stats_request(const CrossEntropy& options) {
  return {.entropy = options.want_entropy, .cross = options.label_smoothing > 0, .argmax = options.want_accuracy};
}

problem::Cross cross(const CrossEntropy& options) { return {options.class_weights, "class_weights"}; }

void check_options(const CrossEntropy& options) {
  core::check_fields(options);
  check_mean(mean_options(options));
}

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropy& options, const problem::TokenProblem& problem,
                                   ranks::Totals totals)
    : ReducedLoss(problem, options.reduction, totals), options_(options) {
  nll_.assign(static_cast<size_t>(problem.tokens), 0);
  if (options.z_loss > 0) z_ = nll_;
  if (options.reduction == Reduction::kMean) {
    double weights = 0, tokens = static_cast<double>(problem.active().size());
    for (const int64_t row : problem.active()) weights += class_weight(row);
    totals_.sum({&weights, &tokens});
    nll_scale_ = reciprocal_or_zero(options.num_items_in_batch.value_or(weights));
    z_scale_ = reciprocal_or_zero(options.num_items_in_batch.value_or(tokens));
  }
  nll_scale_ *= options.loss_scale;
  z_scale_ *= options.loss_scale;
}

TokenLoss::GradsFilled CrossEntropyLoss::gradients() const {
  return {.lse = options_.z_loss > 0, .cross = options_.label_smoothing > 0};
}

double CrossEntropyLoss::class_weight(int64_t row) const {
  if (options_.class_weights.empty()) return 1;
  return options_.class_weights[static_cast<size_t>(*problem_.target(row))];
}

// The cross statistic is Σ_v W_v log p_v with class weights and (1/V) Σ_v log p_v without.
double CrossEntropyLoss::cross_factor() const {
  const double smoothing = options_.label_smoothing;
  return options_.class_weights.empty() ? smoothing : smoothing / static_cast<double>(problem_.vocab_size);
}

void CrossEntropyLoss::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  const double smoothing = options_.label_smoothing;
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const double factor = options_.dft ? std::exp(stats.logp[i]) : 1, upstream = factor * this->upstream(i);
    const double weight = (1 - smoothing) * class_weight(row);
    double nll = weighted(weight, -stats.logp[i]);
    grads.logp[i] = -weight * nll_scale_ * upstream;
    if (smoothing > 0) {
      nll += weighted(cross_factor(), -stats.cross[i]);
      grads.cross[i] = -cross_factor() * nll_scale_ * upstream;
    }
    nll_[i] = weighted(factor, nll);
    if (options_.z_loss > 0) {
      const double lse = stats.lse[i];
      z_[i] = weighted(factor, options_.z_loss * lse * lse);
      grads.lse[i] = weighted(2 * options_.z_loss * z_scale_ * upstream, lse);
    }
  }
}

CrossEntropyResult CrossEntropyLoss::result(const TokenStats& stats, const Plan& plan) const {
  CrossEntropyResult out;
  out.plan = plan;
  out.per_token_loss.assign(nll_.size(), 0);
  CrossEntropyMetrics& metrics = out.metrics;
  double tokens = static_cast<double>(problem_.active().size()), nll = 0, entropy = 0, correct = 0;
  for (const int64_t row : problem_.active()) {
    const auto i = static_cast<size_t>(row);
    nll -= stats.logp[i];
    if (options_.want_entropy) entropy += stats.entropy[i];
    if (options_.want_accuracy) correct += stats.argmax[i] == problem_.target(row);
    const double z = z_.empty() ? 0 : z_[i];
    out.loss += weighted(nll_scale_, nll_[i]);
    metrics.z_loss += weighted(z_scale_, z);
    out.per_token_loss[i] = weighted(options_.loss_scale, nll_[i] + z);
  }
  totals_.sum({&tokens, &nll, &entropy, &correct, &out.loss, &metrics.z_loss});
  metrics.tokens = static_cast<int64_t>(tokens);
  out.loss += metrics.z_loss;
  const double share = reciprocal_or_zero(tokens);
  metrics.mean_nll = nll * share;
  metrics.perplexity = std::exp(metrics.mean_nll);
  if (options_.want_entropy) metrics.mean_entropy = entropy * share;
  if (options_.want_accuracy) metrics.accuracy = correct * share;
  out.per_token_logps = stats.logp;
  out.per_token_lse = stats.lse;
  out.per_token_argmax = stats.argmax;
  return out;
}

}  // namespace logitless::loss
