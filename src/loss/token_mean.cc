// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/token_mean.h"

#include "core/checks.h"
#include "loss/batch.h"

namespace logitless::loss {
void check_mean(const MeanOptions& options) {
  using core::fail;
  const bool own_mean = options.mean_over != MeanOver::kTokens;
  if (options.reduction != Reduction::kMean) {
    if (options.normaliser) fail("normaliser = ", *options.normaliser, " needs reduction mean");
    if (own_mean) fail("mean_over = ", name_of(options.mean_over), " needs reduction mean");
  }
  if (options.normaliser && own_mean) {
    fail("normaliser = ", *options.normaliser, " and mean_over = ", name_of(options.mean_over),
         " are both set: one of the two is enough");
  }
}

TokenMean::TokenMean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals)
    : options_(options), sequences_(static_cast<double>(tokens.sequences())) {
  for (const int64_t count : tokens.counts) tokens_ += static_cast<double>(count);
  if (options.reduction == Reduction::kMean) totals.sum({&tokens_, &sequences_});
}

double TokenMean::factor(const SequenceTokens& tokens, int64_t row) const {
  if (options_.reduction != Reduction::kMean) return 1;
  if (options_.normaliser) return 1 / *options_.normaliser;
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
