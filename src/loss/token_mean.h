// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The factors of per-token losses in the loss of a batch.
#pragma once

#include <cstdint>
#include <optional>

#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "loss/sequences.h"
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
  return {options.reduction, options.mean_over, options.num_items_in_batch};
}

/// Throws InvalidInput for options that contradict each other.
void check_mean(const MeanOptions& options);

/// The factor of each token, 1 / n, where n is the number that the mean divides by, counted over the whole
/// batch.
class TokenMean {
 public:
  TokenMean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals);
  double factor(const SequenceTokens& tokens, int64_t row) const;

 private:
  MeanOptions options_;
  // The divisor of the mean: num_items_in_batch, or else
  double tokens_ = 0;     // tokens that take part
  double sequences_ = 0;  // all sequences, empty ones included
};

}  // namespace logitless::loss
