// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The float64 oracle of the policy losses: docs/losses-policy.md line by line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "logitless/policy.h"
#include "oracle/number.h"
#include "oracle/oracle.h"

namespace logitless::oracle {

/// The tensors of a PolicyLoss in float64; NaN or 0 for ignored tokens.
struct PolicyTokens {
  std::vector<int64_t> offsets;    ///< [B + 1]
  std::vector<bool> is_active;     ///< [N]
  std::vector<double> advantages;  ///< [N], also if the batch has one per sequence
  bool one_advantage_per_sequence = true;
  std::optional<std::vector<double>> old_logps, ref_logps, sampling_logps, teacher_logps;  ///< [N]
  std::optional<std::vector<double>> scores;                                               ///< [B]

  int64_t tokens() const { return static_cast<int64_t>(is_active.size()); }
  int64_t sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

/// Returns labels and temperatures.
Tokens read_tokens(std::span<const int64_t> offsets, int64_t vocab, const PolicyLoss& task);
PolicyTokens read_policy_batch(const PolicyLoss& task, std::vector<int64_t> offsets);

/// The variables of the loss. Entries of ignored tokens are not read; entropy may be empty if nothing needs
/// it.
struct PolicyPoint {
  std::vector<double> logp;     ///< [N]
  std::vector<double> entropy;  ///< [N]
};

/// Numbers are functions of the 2N inputs: logp, then entropy.
struct PolicyValue {
  std::shared_ptr<Tape> tape = std::make_shared<Tape>();  ///< of all Numbers here
  Number loss;
  std::vector<Number> per_token_loss;
  int64_t tokens = 0;
  Number mean_ratio, mean_kl, mean_logp, mean_entropy, mean_teacher_kl;  ///< NaN if not computed
  double clip_fraction_low = 0, clip_fraction_high = 0, clip_fraction = 0;
  std::vector<Kink> kinks;
  Eigen::VectorXd slopes;  ///< of the loss, [2N]

  double d_logp(int64_t token) const { return slopes[token]; }
  double d_entropy(int64_t token) const { return slopes[slopes.size() / 2 + token]; }
};

/// sg() holds its argument at its value at `held`.
PolicyValue compute_policy_loss(const PolicyTokens& tokens, const PolicyLoss& options, const PolicyPoint& at,
                                const PolicyPoint& held);
inline PolicyValue compute_policy_loss(const PolicyTokens& tokens, const PolicyLoss& options, const PolicyPoint& at) {
  return compute_policy_loss(tokens, options, at, at);
}

/// `offsets`: the bounds of the sequences, [S + 1].
LossTruth policy_truth(std::span<const int64_t> offsets, const TokenStatistics& stats, const PolicyLoss& task);

}  // namespace logitless::oracle
