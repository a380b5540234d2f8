// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How per-token losses become the loss of a batch, and the upstream gradient of a backward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/token_stats.h"
#include "loss/math.h"
#include "loss/sequences.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// The options that reduce per-token losses.
struct MeanOptions {
  Reduction reduction = Reduction::kMean;
  MeanOver mean_over = MeanOver::kTokens;
  std::optional<double> num_items_in_batch = {};
};
template <class Options>
MeanOptions mean_options(const Options& options) {
  MeanOptions out = {.reduction = options.reduction, .num_items_in_batch = options.num_items_in_batch};
  if constexpr (requires { options.mean_over; }) out.mean_over = options.mean_over;
  return out;
}

/// Throws InvalidInput for options that contradict each other.
void check_mean(const MeanOptions& options);

/// The factor of each token's loss in the loss of a batch.
struct TokenMean {
  double divisor = 1;
  bool over_sequence_means = false;  // a token is also divided by the number of tokens of its sequence

  double factor(const SequenceTokens& tokens, size_t row) const {
    return reciprocal_or_zero(over_sequence_means ? divisor * tokens.count(tokens.sequence[row]) : divisor);
  }
};
/// Returns the factors for these options, with the counts of the whole batch.
TokenMean token_mean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals);

/// A loss whose token gradients depend on ∂L/∂loss, which is 1 unless set: one value, or one per token under
/// Reduction::kNone.
class ReducedLoss : public TokenLoss {
 public:
  /// The problem must outlive this object.
  ReducedLoss(const problem::TokenProblem& problem, Reduction reduction, ranks::Totals totals)
      : problem_(problem), totals_(totals), reduction_(reduction) {}

  /// Sets one value for every token.
  void set_upstream(double value);
  /// Sets values that must outlive evaluate(): one entry, or [N] under kNone. Throws InvalidInput.
  void set_upstream(std::span<const double> values);

 protected:
  double upstream(size_t row) const { return upstreams_.empty() ? upstream_ : upstreams_[row]; }

  const problem::TokenProblem& problem_;
  const ranks::Totals totals_;

 private:
  const Reduction reduction_;
  double upstream_ = 1;
  std::span<const double> upstreams_;
};

}  // namespace logitless::loss
