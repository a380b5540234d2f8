// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/token_mean.h"

#include "core/checks.h"
#include "loss/batch.h"

namespace logitless::loss {
void check_mean(const MeanOptions& options) {
  using core::fail;
  if (options.reduction == Reduction::kMean) return;
  if (options.num_items_in_batch) fail("num_items_in_batch = ", *options.num_items_in_batch, " needs reduction mean");
  if (options.mean_over != MeanOver::kTokens) {
    fail("mean_over = ", name_of(options.mean_over), " needs reduction mean");
  }
}

TokenMean::TokenMean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals)
    : options_(options), sequences_(static_cast<double>(tokens.sequences())) {
  for (const int64_t count : tokens.counts) tokens_ += static_cast<double>(count);
  if (options.reduction == Reduction::kMean) totals.sum({&tokens_, &sequences_});
  if (options.num_items_in_batch) tokens_ = sequences_ = *options.num_items_in_batch;
}

double TokenMean::factor(const SequenceTokens& tokens, int64_t row) const {
  if (options_.reduction != Reduction::kMean) return 1;
  switch (options_.mean_over) {
    case MeanOver::kTokens:
      return reciprocal_or_zero(tokens_);
    case MeanOver::kSequences:
      return reciprocal_or_zero(sequences_);
    case MeanOver::kSequenceMeans:
      return reciprocal_or_zero(sequences_ * tokens.count(tokens.sequence[static_cast<size_t>(row)]));
  }
  return 0;
}

}  // namespace logitless::loss
