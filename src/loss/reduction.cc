// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/reduction.h"

#include "core/check_fields.h"
#include "core/checks.h"

namespace logitless {

TokenLoss::~TokenLoss() = default;

namespace loss {

using core::fail;
using core::fail_if;

void check_mean(const MeanOptions& options) {
  if (options.reduction == Reduction::kMean) return;
  if (options.num_items_in_batch) fail("num_items_in_batch = ", *options.num_items_in_batch, " needs reduction mean");
  fail_if(options.mean_over != MeanOver::kTokens, "mean_over = ", name_of(options.mean_over), " needs reduction mean");
}

TokenMean token_mean(const MeanOptions& options, const SequenceTokens& tokens, const ranks::Totals& totals) {
  if (options.reduction != Reduction::kMean) return {};
  // The mean over sequences counts empty ones, too.
  double token_count = tokens.total(), sequence_count = static_cast<double>(tokens.sequences());
  totals.sum({&token_count, &sequence_count});
  const double count = options.mean_over == MeanOver::kTokens ? token_count : sequence_count;
  return {options.num_items_in_batch.value_or(count), options.mean_over == MeanOver::kSequenceMeans};
}

void ReducedLoss::set_upstream(double value) {
  core::check_field("upstream", kFinite, value);
  upstream_ = value;
}

void ReducedLoss::set_upstream(std::span<const double> values) {
  const bool per_token = reduction_ == Reduction::kNone;
  const int64_t wanted = per_token ? problem_.tokens : 1;
  fail_if(static_cast<int64_t>(values.size()) != wanted, "upstream has ", values.size(), " entries but must have ",
          wanted, per_token ? ": one per token under reduction none" : ": the loss is one value");
  core::check_aligned("upstream", values);
  if (!per_token) return set_upstream(values[0]);
  problem::check_finite_entries("upstream", values, problem_);
  upstreams_ = values;
}

}  // namespace loss
}  // namespace logitless
