// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/token_mean.h"

#include <limits>

#include "oracle/oracle.h"

namespace logitless::oracle {

std::vector<double> read_token_weights(const ConstTensor& given, const std::vector<int64_t>& labels) {
  std::vector<double> weights;
  for (size_t i = 0; i < labels.size(); ++i) {
    const double weight = given.given() ? read_element(given.data, given.dtype, static_cast<int64_t>(i)) : 1;
    weights.push_back(labels[i] == kNoLabel ? 0 : weight);
  }
  return weights;
}

std::vector<double> mean_divisors(const TokenMean& mean, const std::vector<double>& counts,
                                  std::span<const int64_t> offsets) {
  std::vector<double> out(counts.size(), 1);
  if (mean.reduction != Reduction::kMean) return out;
  double tokens = 0, weights = 0, sequences = static_cast<double>(offsets.size() - 1);
  for (size_t i = 0; i < counts.size(); ++i) {
    tokens += counts[i];
    weights += counts[i] * mean.weights[i];
  }
  if (mean.num_items_in_batch) tokens = weights = sequences = *mean.num_items_in_batch;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const auto begin = static_cast<size_t>(offsets[s]), end = static_cast<size_t>(offsets[s + 1]);
    double own = 0;
    for (size_t i = begin; i < end; ++i) own += counts[i];
    for (size_t i = begin; i < end; ++i) {
      switch (mean.mean_over) {
        case MeanOver::kTokens:
          out[i] = tokens;
          break;
        case MeanOver::kSequences:
          out[i] = sequences;
          break;
        case MeanOver::kSequenceMeans:
          out[i] = sequences * own;
          break;
        case MeanOver::kTokenWeights:
          out[i] = weights;
          break;
      }
      if (out[i] == 0) out[i] = std::numeric_limits<double>::infinity();
    }
  }
  return out;
}

std::vector<double> mean_divisors(const TokenMean& mean, const std::vector<int64_t>& labels,
                                  std::span<const int64_t> offsets) {
  std::vector<double> counts;
  for (const int64_t label : labels) counts.push_back(label != kNoLabel);
  return mean_divisors(mean, counts, offsets);
}

}  // namespace logitless::oracle
