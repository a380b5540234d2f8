// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Policy losses as a function of token statistics: docs/losses-policy.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "core/store.h"
#include "logitless/policy.h"
#include "logitless/token_stats.h"
#include "loss/math.h"
#include "loss/policy_stages.h"
#include "loss/sequences.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Returns the memory of a batch: no output may overlap it.
core::Array<core::ByteRange> batch_ranges(const PolicyLoss& task);

class CompletionLoss final : public TokenLoss {
 public:
  /// Keeps a reference to the options; checks it and the tensors (PolicyBatch).
  CompletionLoss(const PolicyLoss& options, std::span<const int64_t> offsets, int64_t vocab_size,
                 std::string_view rows_name = "hidden", ranks::Totals totals = ranks::Totals());

  const PolicyBatch& batch() const { return batch_; }
  /// Sets which pick of each row is its chosen id, [N], for rows with several picks: log-probabilities and
  /// their gradients are then per pick.
  void set_chosen_picks(core::Array<int64_t> picks) { batch_.picks = std::move(picks); }

  StatsRequest needs() const override;
  GradsFilled gradients() const override { return {.entropy = options_.entropy_bonus != 0}; }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// Returns the loss and metrics of all evaluated rows.
  PolicyResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  void couple(std::span<const int64_t> rows, const TokenStats& stats);
  double factor(size_t row) const {  // of a token's loss in the loss of the batch
    const SequenceTokens& tokens = batch_.tokens;
    return reciprocal_or_zero(divides_by_sequence_ ? divisor_ * tokens.count(tokens.sequence[row]) : divisor_);
  }
  double top_tokens() const { return options_.top_entropy_quantile < 1 ? weights_.top_tokens() : tokens_; }

  const PolicyLoss& options_;
  ranks::Totals totals_;
  PolicyBatch batch_;
  PolicyRatios ratios_;
  PolicyWeights weights_;
  double divisor_ = 1;
  bool divides_by_sequence_ = false;  // also divides a token's loss by the number of tokens of its sequence
  double tokens_ = 0;                 // active tokens of the whole batch
  double good_tokens_ = 0;            // active tokens in sequences with a score above 0
  core::Array<int64_t> groups_;       // [N], or empty if tokens do not depend on each other
  bool couples_batch_ = false;        // all tokens of the batch are one group
  core::Array<bool> chosen_;          // [N]: by its covariance; empty if the loss type chooses none

  // [N], for the evaluated rows.
  core::Array<double> loss_, ratio_, kl_;  // kl_: empty without beta
  core::Array<Clip> clips_;
};

}  // namespace logitless::loss
