// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How the losses of tokens become the loss of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "logitless/cross_entropy.h"

namespace logitless::oracle {

/// The options that weight and average the losses of tokens.
struct TokenMean {
  Reduction reduction;
  MeanOver mean_over;
  std::optional<double> num_items_in_batch;
  std::vector<double> weights;  ///< [N]: 1 without token weights; 0 for ignored rows
};

/// Returns the weights of the rows, [N]. `labels` has kNoLabel for ignored rows, whose weights are not read.
std::vector<double> read_token_weights(const ConstTensor& given, const std::vector<int64_t>& labels);

/// Returns what a task's options say about its tokens.
template <class Options>
TokenMean token_mean(const Options& options, const std::vector<int64_t>& labels) {
  return {options.reduction, options.mean_over, options.num_items_in_batch,
          read_token_weights(options.token_weights, labels)};
}

/// Returns the divisor of each row's weighted loss, [N]: infinity if the mean is empty. `counts`: what each
/// row counts as in a sum over tokens, [N], 0 for ignored rows. `offsets` holds the bounds of the sequences.
std::vector<double> mean_divisors(const TokenMean& mean, const std::vector<double>& counts,
                                  std::span<const int64_t> offsets);
/// The same if each row counts as 1.
std::vector<double> mean_divisors(const TokenMean& mean, const std::vector<int64_t>& labels,
                                  std::span<const int64_t> offsets);

}  // namespace logitless::oracle
