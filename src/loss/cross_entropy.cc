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

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropy& options, std::span<const int64_t> offsets,
                                   const problem::TokenProblem& problem, ranks::Totals totals)
    : ReducedLoss(problem, mean_options(options), offsets, totals), options_(options) {
  nll_.assign(static_cast<size_t>(problem.tokens), 0);
  if (options.z_loss == 0) return;
  z_ = nll_;
  z_mean_ = mean_;
  if (options.class_weights.empty()) return;
  MeanOptions of_z = mean_options(options);
  of_z.class_weights = {};
  z_mean_ = token_mean(of_z, offsets);
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
    if (token_weight(i) == 0) continue;
    const double factor = token_weight(i) * (options_.dft ? std::exp(stats.logp[i]) : 1);
    const double upstream = factor * this->upstream(i);
    const double weight = (1 - smoothing) * class_weight(row);
    double nll = weighted(weight, -stats.logp[i]);
    grads.logp[i] = -weight * nll_scale(i) * upstream;
    if (smoothing > 0) {
      nll += weighted(cross_factor(), -stats.cross[i]);
      grads.cross[i] = -cross_factor() * nll_scale(i) * upstream;
    }
    nll_[i] = weighted(factor, nll);
    if (options_.z_loss > 0) {
      const double lse = stats.lse[i];
      z_[i] = weighted(factor, options_.z_loss * lse * lse);
      grads.lse[i] = weighted(2 * options_.z_loss * z_scale(i) * upstream, lse);
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
    out.loss += weighted(nll_scale(i), nll_[i]);
    metrics.z_loss += weighted(z_scale(i), z);
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
