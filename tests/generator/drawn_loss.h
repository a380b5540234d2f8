// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A caller's own loss, of the statistics selected by a drawn call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "generator/drawn_call.h"
#include "logitless/token_stats.h"

namespace logitless::testing {

/// Gradients are smooth functions of the statistics of a row, and of all rows in its group. The loss has no
/// state.
class DrawnLoss : public TokenLoss {
 public:
  DrawnLoss(const DrawnCall& call, std::span<const float> cross_weights) : call_(call), cross_weights_(cross_weights) {
    for (int64_t i = 0; i < call.tokens(); ++i) groups_.push_back(i % 3);
  }

  StatsRequest needs() const override {
    StatsRequest request;
    request.argmax = call_.strided_ids;
    request.cross = call_.weights_of_entries;
    request.cross_weights = cross_weights_;
    return request;
  }
  GradsFilled gradients() const override {
    return {.lse = call_.old_logps,
            .entropy = call_.mask,
            .cross = call_.weights_of_entries,
            .outside = call_.per_token,
            .square_sum = call_.strided_ids};
  }
  std::span<const int64_t> groups() const override {
    return grouped() ? std::span(groups_) : std::span<const int64_t>();
  }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    std::map<int64_t, double> sums;
    for (const int64_t row : rows)
      sums[groups_[static_cast<size_t>(row)]] += std::tanh(stats.logp[static_cast<size_t>(row)]);
    for (const int64_t row : rows) {
      const auto i = static_cast<size_t>(row);
      const bool dropped = call_.data_ranks == 1 && row % 4 == 1;
      const double weight = dropped ? 0 : grouped() ? 0.5 + 0.1 * sums[groups_[i]] : 1;
      grads.logp[i] = weight * (std::tanh(stats.logp[i]) - 0.5);
      if (call_.old_logps) grads.lse[i] = weight * 0.25 * std::tanh(stats.lse[i]);
      if (call_.mask) grads.entropy[i] = weight * (stats.entropy[i] - 0.5);
      if (call_.weights_of_entries) grads.cross[i] = weight * 0.25 * std::tanh(stats.cross[i]);
      if (call_.strided_ids) grads.square_sum[i] = weight * std::tanh(stats.square_sum[i]);
      if (call_.per_token) grads.outside[i] = std::isinf(stats.outside[i]) ? 0 : weight * std::tanh(stats.outside[i]);
    }
  }

 private:
  bool grouped() const { return call_.kept && call_.data_ranks == 1; }  // ranks number only their own rows

  DrawnCall call_;
  std::span<const float> cross_weights_;
  std::vector<int64_t> groups_;
};

}  // namespace logitless::testing
