// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/loss_truth.h"

#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"

namespace logitless::oracle {
namespace {

std::vector<double> to_vector(const VectorXd& values) { return {values.begin(), values.end()}; }

VectorXd to_eigen(const std::vector<double>& values) {
  return Eigen::Map<const VectorXd>(values.data(), static_cast<int64_t>(values.size()));
}

}  // namespace

LossTruth cross_entropy_truth(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropyOptions& options) {
  Loss loss = compute_cross_entropy(tokens, stats, options);
  return {loss.loss, std::move(loss.per_token_loss), std::move(loss.grads)};
}

LossTruth policy_truth(std::span<const int64_t> offsets, const TokenStatistics& stats, const PolicyBatch& batch,
                       const PolicyOptions& options) {
  const PolicyTokens tokens = read_policy_batch(batch, {offsets.begin(), offsets.end()});
  const PolicyLoss loss = compute_policy_loss(tokens, options, {to_vector(stats.logp), to_vector(stats.entropy)});
  LossTruth truth{loss.loss.value, {}, TokenGradients(tokens.tokens())};
  for (int64_t i = 0; i < tokens.tokens(); ++i) {
    truth.per_token_loss.push_back(loss.per_token_loss[i].value);
    truth.grads.logp[i] = loss.d_logp(i);
    truth.grads.entropy[i] = loss.d_entropy(i);
  }
  return truth;
}

LossTruth preference_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                           const ConstVector& reference, const PreferenceOptions& options) {
  SequenceBatch batch = read_batch(tokens, stats, {offsets.begin(), offsets.end()});
  if (reference.size > 0) batch.reference = read_reference(reference, batch);
  const PreferenceTruth loss = compute_preference(batch, options);
  LossTruth truth{loss.loss, {}, TokenGradients(tokens.tokens())};
  truth.grads.logp = to_eigen(loss.d_logp);
  return truth;
}

LossTruth kto_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoBatch& batch, const KtoOptions& options) {
  KtoInput input;
  input.batch = read_batch(tokens, stats, {offsets.begin(), offsets.end()});
  input.batch.reference = read_reference(batch.reference.logps, input.batch);
  input.labels.assign(batch.labels.begin(), batch.labels.end());
  input.kl_logps = read_vector(batch.kl_logps);
  input.kl_ref_logps = read_vector(batch.kl_ref_logps);
  const KtoTruth loss = compute_kto(input, options);
  LossTruth truth{loss.loss, {}, TokenGradients(tokens.tokens())};
  truth.grads.logp = to_eigen(loss.d_logp);
  return truth;
}

}  // namespace logitless::oracle
