// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Losses of single sequences (KTO and others) as functions of token statistics: docs/losses-preference.md,
// "Single sequences".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/store.h"
#include "logitless/preference.h"
#include "loss/math.h"
#include "loss/sequences.h"
#include "ranks/totals.h"

namespace logitless::loss {

void check_kto_options(const KtoLoss& options);

class SequenceLoss final : public TokenLoss {
 public:
  /// Keeps a reference to the options; checks and copies labels and baseline. Messages call the tensor with
  /// the rows `rows_name`.
  SequenceLoss(const KtoLoss& options, SequenceTokens tokens, std::string_view rows_name,
               ranks::Totals totals = ranks::Totals());

  const SequenceTokens& tokens() const { return tokens_; }
  /// Sets Σ_t log-probability under the reference, [B]. Call it before evaluate().
  void set_reference(core::Array<double> sums) { reference_ = std::move(sums); }

  StatsRequest needs() const override { return {.entropy = options_.want_entropy}; }
  GradsFilled gradients() const override { return {}; }
  std::span<const int64_t> groups() const override { return tokens_.sequence; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  KtoResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  WithSlope value(size_t s) const;
  double log_ratio(size_t s) const { return (sums_[s] - reference_[s]) * scale(s); }
  double scale(size_t s) const;

  const KtoLoss& options_;
  SequenceTokens tokens_;
  ranks::Totals totals_;
  double kl_ = 0;      // the baseline
  double active_ = 0;  // active sequences of the whole batch
  core::Array<bool> desirable_;
  core::Array<double> reference_;
  core::Array<double> weights_;  // [B] or empty
  core::Array<double> targets_;  // [B] or empty
  core::Array<double> sums_;     // [B]
  core::Array<double> loss_;     // [B]
};

}  // namespace logitless::loss
