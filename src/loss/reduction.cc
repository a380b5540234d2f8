// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "loss/reduction.h"

#include <algorithm>
#include <limits>

#include "core/check_fields.h"
#include "core/checks.h"
#include "core/fields.h"
#include "core/tensors.h"
#include "core/views.h"

namespace logitless {

TokenLoss::~TokenLoss() = default;

namespace loss {

using core::fail;
using core::fail_if;

namespace {

// Returns the weights of the active rows, and 0 for ignored ones.
core::Array<double> read_token_weights(const MeanOptions& options, const problem::TokenProblem& problem) {
  const bool given = options.token_weights.given();
  fail_if(options.mean_over == MeanOver::kTokenWeights && !given && problem.tokens > 0,
          "mean_over = token_weights needs token_weights");
  if (!given) return {};
  const ConstVector values = core::vector_of(kTokenWeights.name, options.token_weights);
  problem::check_entries(kTokenWeights.name, static_cast<size_t>(values.size), problem);
  core::Array<double> out(static_cast<size_t>(problem.tokens), 0);
  for (const int64_t row : problem.active()) {
    const double weight = core::read(values, row);
    fail_if(!kTokenWeights.range.holds(weight), kTokenWeights.name, "[", row, "] = ", weight, " must be ",
            kTokenWeights.range.text);
    out[static_cast<size_t>(row)] = weight;
  }
  return out;
}

// The reciprocal of the sum must be a number.
void check_sum_of_weights(double sum) {
  constexpr double kLeast = std::numeric_limits<double>::min(), kMost = std::numeric_limits<double>::max();
  fail_if(sum != 0 && !(sum >= kLeast && sum <= kMost), "the weights of all tokens add up to ", sum,
          ", and mean_over = token_weights divides by it: it must be in [", kLeast, ", ", kMost, "]");
}

}  // namespace

void check_mean(const MeanOptions& options) {
  if (options.reduction == Reduction::kMean) return;
  if (options.num_items_in_batch) fail("num_items_in_batch = ", *options.num_items_in_batch, " needs reduction mean");
  fail_if(options.mean_over != MeanOver::kTokens, "mean_over = ", name_of(options.mean_over), " needs reduction mean");
}

ReducedLoss::ReducedLoss(const problem::TokenProblem& problem, const MeanOptions& options,
                         std::span<const int64_t> offsets, ranks::Totals totals)
    : problem_(problem),
      totals_(totals),
      token_weights_(read_token_weights(options, problem)),
      mean_(token_mean(options, offsets)),
      reduction_(options.reduction) {}

TokenMean ReducedLoss::token_mean(const MeanOptions& options, std::span<const int64_t> offsets) const {
  if (options.reduction != Reduction::kMean) return {};
  const MeanOver over = options.mean_over;
  // What a row counts as in a sum over tokens.
  const auto mass = [&](int64_t row) {
    const double weight = over == MeanOver::kTokenWeights ? token_weight(static_cast<size_t>(row)) : 1;
    if (options.class_weights.empty()) return weight;
    return weight * options.class_weights[static_cast<size_t>(*problem_.target(row))];
  };
  const core::Array<int64_t>& active = problem_.active();
  // A mean over sequences counts empty ones, too.
  double tokens = 0, sequences = static_cast<double>(offsets.size() - 1);
  for (const int64_t row : active) tokens += mass(row);
  totals_.sum({&tokens, &sequences});
  const bool over_sequences = over == MeanOver::kSequences || over == MeanOver::kSequenceMeans;
  TokenMean out = {options.num_items_in_batch.value_or(over_sequences ? sequences : tokens)};
  if (over == MeanOver::kTokenWeights) check_sum_of_weights(out.divisor);
  if (over != MeanOver::kSequenceMeans) return out;
  out.row_divisors.assign(static_cast<size_t>(problem_.tokens), 0);
  auto first = active.begin();
  for (size_t s = 1; s < offsets.size(); ++s) {
    const auto last = std::lower_bound(first, active.end(), offsets[s]);
    double own = 0;
    std::for_each(first, last, [&](int64_t row) { own += mass(row); });
    for (; first != last; ++first) out.row_divisors[static_cast<size_t>(*first)] = own;
  }
  return out;
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
