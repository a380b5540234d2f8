// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What losses of single tokens are multiplied with on their way into the loss of a batch.
#pragma once

#include <cstdint>
#include <optional>

#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "loss/sequences.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// How a batch's loss is made of its tokens': the options of that name.
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

/// The factor of each token, 1 / n, where n is what the mean is over; counts are those of the whole batch.
class TokenMean {
 public:
  TokenMean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals);
  double factor(const SequenceTokens& tokens, int64_t row) const;

 private:
  MeanOptions options_;
  // What the mean divides by: num_items_in_batch, or else
  double tokens_ = 0;     // those that take part
  double sequences_ = 0;  // all, empty ones included
};

}  // namespace logitless::loss
