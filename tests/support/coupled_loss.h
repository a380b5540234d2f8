// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A loss whose token gradients depend on all rows of a group.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "logitless/token_stats.h"

namespace logitless::testing {

/// L = Σ_g (S_g² / 2 + S_g E_g) with S_g = Σ_{i in g} logp_i and E_g = Σ_{i in g} entropy_i (0 without
/// entropy):
///   ∂L/∂logp_i = S_g + E_g,  ∂L/∂entropy_i = S_g.
/// Sums the rows of one call of evaluate(), so a group that is split between calls gets wrong gradients.
class CoupledLoss : public TokenLoss {
 public:
  /// Without `declared` the engine is not told about the groups.
  CoupledLoss(std::vector<int64_t> groups, bool entropy, bool declared = true)
      : groups_(std::move(groups)), entropy_(entropy), declared_(declared) {}

  // The entropy for its gradient is included automatically.
  StatsRequest needs() const override { return {}; }
  GradsFilled gradients() const override { return {.entropy = entropy_}; }
  bool may_drop_rows() const override { return false; }
  std::span<const int64_t> groups() const override {
    return declared_ ? std::span<const int64_t>(groups_) : std::span<const int64_t>();
  }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override {
    calls_.emplace_back(rows.begin(), rows.end());
    std::map<int64_t, std::pair<double, double>> sums;
    for (const int64_t row : rows) {
      auto& [logp, entropy] = sums[groups_[row]];
      logp += stats.logp[row];
      if (entropy_) entropy += stats.entropy[row];
    }
    for (const int64_t row : rows) {
      const auto& [logp, entropy] = sums[groups_[row]];
      grads.logp[row] = logp + entropy;
      if (entropy_) grads.entropy[row] = logp;
    }
  }

  /// The rows of each call of evaluate().
  const std::vector<std::vector<int64_t>>& calls() const { return calls_; }

 private:
  std::vector<int64_t> groups_;
  bool entropy_;
  bool declared_;
  std::vector<std::vector<int64_t>> calls_;
};

}  // namespace logitless::testing
