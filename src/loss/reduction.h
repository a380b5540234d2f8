// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How per-token losses become the loss of a batch, and the upstream gradient of a backward pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/store.h"
#include "logitless/cross_entropy.h"
#include "logitless/tensor.h"
#include "logitless/token_stats.h"
#include "loss/math.h"
#include "problem/token_problem.h"
#include "ranks/totals.h"

namespace logitless::loss {

/// The options and tensors that weight and reduce per-token losses.
struct MeanOptions {
  Reduction reduction = Reduction::kMean;
  MeanOver mean_over = MeanOver::kTokens;
  std::optional<double> num_items_in_batch = {};
  ConstTensor token_weights = {};
  std::span<const float> class_weights = {};  // [V]: what a token with this target counts as; empty: 1
};
template <class Options>
MeanOptions mean_options(const Options& options) {
  MeanOptions out = {options.reduction, options.mean_over, options.num_items_in_batch, options.token_weights};
  if constexpr (requires { options.class_weights; }) out.class_weights = options.class_weights;
  return out;
}

/// Throws InvalidInput for options that contradict each other.
void check_mean(const MeanOptions& options);

/// The factor of each token's weighted loss in the loss of a batch.
struct TokenMean {
  double divisor = 1;
  core::Array<double> row_divisors = {};  // [N], of a row's sequence; empty: 1 each

  double factor(size_t row) const {
    return reciprocal_or_zero(row_divisors.empty() ? divisor : divisor * row_divisors[row]);
  }
};

/// A loss that is a weighted sum of per-token losses. Its token gradients depend on ∂L/∂loss, which is 1
/// unless set: one value, or one per token under Reduction::kNone. Rows with weight 0 keep token gradients of
/// 0.
class ReducedLoss : public TokenLoss {
 public:
  /// `offsets`: of the sequences, [B + 1]. The problem must outlive this object. Throws InvalidInput for
  /// token weights that do not fit.
  ReducedLoss(const problem::TokenProblem& problem, const MeanOptions& options, std::span<const int64_t> offsets,
              ranks::Totals totals);

  /// Sets one value for every token.
  void set_upstream(double value);
  /// Sets values that must outlive evaluate(): one entry, or [N] under kNone. Throws InvalidInput.
  void set_upstream(std::span<const double> values);

  /// Returns the checked weights, [N]; empty if there are none.
  const core::Array<double>& token_weights() const { return token_weights_; }

 protected:
  double upstream(size_t row) const { return upstreams_.empty() ? upstream_ : upstreams_[row]; }
  double token_weight(size_t row) const { return token_weights_.empty() ? 1 : token_weights_[row]; }
  /// Returns the factors for these options, with the sums of the whole batch.
  TokenMean token_mean(const MeanOptions& options, std::span<const int64_t> offsets) const;

  const problem::TokenProblem& problem_;
  const ranks::Totals totals_;
  core::Array<double> token_weights_;  // [N], 0 for ignored rows, which are not read; empty: all 1
  TokenMean mean_;

 private:
  const Reduction reduction_;
  double upstream_ = 1;
  std::span<const double> upstreams_;
};

}  // namespace logitless::loss
