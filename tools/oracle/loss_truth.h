// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The oracles of all losses in one shape: statistics in, loss and gradients of the statistics out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logitless/policy.h"
#include "logitless/preference.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

struct LossTruth {
  double loss = 0;
  std::vector<double> per_token_loss;  ///< [N], as the library reports them; empty where the loss has none
  TokenGradients grads;
};

/// `offsets`: where the sequences begin and end, [S + 1]; `tokens` is what read_tokens() made of the same call.
LossTruth cross_entropy_truth(const Tokens& tokens, const TokenStatistics& stats, const CrossEntropyOptions& options);
LossTruth policy_truth(std::span<const int64_t> offsets, const TokenStatistics& stats, const PolicyBatch& batch,
                       const PolicyOptions& options);
/// `reference`: as Reference::logps; empty where the loss takes none.
LossTruth preference_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                           const ConstVector& reference, const PreferenceOptions& options);
/// The reference of `batch` is log-probabilities.
LossTruth kto_truth(std::span<const int64_t> offsets, const Tokens& tokens, const TokenStatistics& stats,
                    const KtoBatch& batch, const KtoOptions& options);

}  // namespace logitless::oracle
