// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Preference losses on pairs as a function of token statistics: docs/losses-preference.md.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"
#include "logitless/preference.h"
#include "loss/preference_losses.h"
#include "loss/sequences.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// Throws InvalidInput for an option that is out of range or has no meaning.
void check_preference_options(const PreferenceLoss& options);

class PairLoss final : public TokenLoss {
 public:
  /// Keeps a reference to the options. `tokens` has 2B sequences; drops the pairs with an empty side from it.
  PairLoss(const PreferenceLoss& options, SequenceTokens tokens, ranks::Totals totals = ranks::Totals());

  const SequenceTokens& tokens() const { return tokens_; }
  /// Sets Σ_t log-probability under the reference, [2B]. Call it before evaluate() if a loss needs it.
  void set_reference(core::Array<double> sums) { reference_ = std::move(sums); }
  /// Returns the weight of each token in its sequence's sum, [N]; empty: all 1.
  std::span<const double> token_weights() const { return token_weights_; }

  StatsRequest needs() const override {
    return {.entropy = options_.want_entropy, .square_sum = options_.use_weighting};
  }
  GradsFilled gradients() const override { return {}; }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  PreferenceResult result(const TokenStats& stats, const Plan& plan) const;

 private:
  // The input of the losses of a pair.
  struct Side {
    double logp = 0;   // Σ logp
    double ratio = 0;  // Σ (logp − reference)
    double count = 1;  // tokens
    double scale(bool averages) const { return averages ? 1 / count : 1; }
  };
  struct Pair {
    Side chosen, rejected;
    double weight = 1;  // of WPO
  };

  int64_t other_side(int64_t s) const { return s < batch_ ? s + batch_ : s - batch_; }
  bool averages_in_report() const;
  double likelihood_weight() const;
  Pair pair(int64_t index) const;
  PairValue value(const PairLossRow& row, const Pair& pair) const;
  double weight(size_t k) const;
  void weigh_tails();
  void add_sorted(PairKind kind, double scale, std::span<const int64_t> pairs);
  void add(int64_t index, double scale, const PairValue& value);

  const PreferenceLoss& options_;
  SequenceTokens tokens_;
  int64_t batch_ = 0;  // pairs, including ignored ones
  ranks::Totals totals_;
  double pairs_ = 0;          // active pairs of the whole batch
  double chosen_tokens_ = 0;  // chosen tokens of these pairs
  core::Array<int64_t> groups_;
  core::Array<double> reference_;      // [2B] or empty
  core::Array<double> token_weights_;  // [N] or empty
  core::Array<double> sums_;           // [2B]: Σ logp, weighted
  core::Array<double> likelihoods_;    // [2B]: Σ logp
  core::Array<double> certainties_;    // [2B]: Σ (logp − log Σ p²), or empty
  core::Array<double> by_sum_;         // [2B]: ∂loss/∂Σ logp
  core::Array<double> loss_;           // [B], with its weight and divided
};

}  // namespace logitless::loss
