// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "oracle/number.h"
#include "oracle/preference_oracle.h"

namespace logitless::oracle {
namespace {

double baseline(const KtoInput& input) {
  if (input.kl_logps.empty()) return 0;
  double sum = 0;
  for (size_t j = 0; j < input.kl_logps.size(); ++j) sum += input.kl_logps[j] - input.kl_ref_logps[j];
  return std::max(0.0, sum / static_cast<double>(input.kl_logps.size()));
}

double mean(double sum, int64_t count) { return sum / static_cast<double>(count); }  // NaN for none

}  // namespace

KtoTruth compute_kto(const KtoInput& input, const KtoLoss& options) {
  const SequenceBatch& batch = input.batch;
  const double kl = baseline(input);
  KtoTruth truth;
  truth.d_logp.assign(batch.logp.size(), 0.0);
  KtoMetrics& metrics = truth.metrics;
  metrics.kl = kl;
  int64_t sequences = 0;
  for (int64_t s = 0; s < batch.sequences(); ++s) sequences += batch.count(s) > 0 ? 1 : 0;

  double entropy = 0, reward[2] = {0, 0}, logp[2] = {0, 0};
  int64_t kinds[2] = {0, 0};
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    const int64_t tokens = batch.count(s);
    const double divisor = options.average_log_prob ? std::max<double>(1, static_cast<double>(tokens)) : 1.0;
    truth.sequence_logps.push_back(batch.sum(batch.logp, s) / divisor);
    truth.sequence_losses.push_back(0);
    if (tokens == 0) continue;
    const double log_ratio = truth.sequence_logps[s] - batch.reference[s] / divisor;  // L − L⁰
    const bool desirable = input.labels[s] != 0;
    const double weight = (desirable ? options.desirable_weight : options.undesirable_weight) *
                          (input.sequence_weights.empty() ? 1 : input.sequence_weights[s]);
    const double sign = desirable ? 1 : -1;
    double loss = 0, by_logp = 0;
    if (options.loss_type == KtoLossType::kBco) {
      // −log σ(x), with x = ± (β (L − L⁰) − δ).
      const double x = sign * (options.beta * log_ratio - options.bco_delta);
      loss = x > 0 ? std::log1p(std::exp(-x)) : std::log1p(std::exp(x)) - x;
      by_logp = -sigmoid(-x).value * sign * options.beta;
    } else if (options.loss_type == KtoLossType::kA2po) {
      const double error = options.beta * log_ratio - input.reward_targets[s];
      loss = error * error;
      by_logp = 2 * error * options.beta;
    } else {
      // 1 − σ(x), with x = ± β (L − L⁰ − kl).
      const double x = sign * options.beta * (log_ratio - kl);
      loss = sigmoid(-x).value;
      by_logp = -sigmoid(x).value * sigmoid(-x).value * sign * options.beta;
    }
    by_logp *= weight;
    truth.sequence_losses[s] = weight * loss;
    const double share = options.loss_scale / static_cast<double>(sequences);
    truth.loss += share * truth.sequence_losses[s];
    for (int64_t i = batch.offsets[s]; i < batch.offsets[s + 1]; ++i) {
      if (batch.is_active[i]) truth.d_logp[i] = share * by_logp / divisor;
    }

    reward[desirable] += options.beta * log_ratio;
    logp[desirable] += truth.sequence_logps[s];
    kinds[desirable] += 1;
    metrics.tokens += tokens;
    if (options.want_entropy) entropy += batch.sum(batch.entropy, s);
  }
  metrics.desirable = kinds[1];
  metrics.undesirable = kinds[0];
  metrics.desirable_reward = mean(reward[1], kinds[1]);
  metrics.undesirable_reward = mean(reward[0], kinds[0]);
  metrics.margin = metrics.desirable_reward - metrics.undesirable_reward;
  metrics.desirable_logp = mean(logp[1], kinds[1]);
  metrics.undesirable_logp = mean(logp[0], kinds[0]);
  if (options.want_entropy) metrics.mean_entropy = mean(entropy, metrics.tokens);
  return truth;
}

KtoTruth kto_result(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task) {
  KtoInput input;
  input.batch = read_batch(tokens, stats, {offsets.begin(), offsets.end()});
  add_reference(task.ref_logps, task.ref_logps_per, task.ref_logps_are, input.batch);
  input.labels.assign(task.labels.begin(), task.labels.end());
  input.labels.resize(input.batch.sequences(), 1);
  input.kl_logps = read_vector(task.kl_logps);
  input.kl_ref_logps = read_vector(task.kl_ref_logps);
  input.sequence_weights = read_vector(task.sequence_weights);
  input.reward_targets = read_vector(task.reward_targets);
  return compute_kto(input, task);
}

LossTruth kto_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoLoss& task) {
  const KtoTruth loss = kto_result(offsets, tokens, stats, task);
  LossTruth truth{loss.loss, {}, TokenGradients(tokens.tokens())};
  truth.grads.logp = to_eigen(loss.d_logp);
  return truth;
}

}  // namespace logitless::oracle
