// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A loss whose token gradients are given numbers, for calls that take any loss.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "logitless/token_stats.h"
#include "support/problem.h"

namespace logitless::testing {

/// Draws random numbers for the terms that are wanted (logp, lse, entropy, cross, outside); a third of the
/// rows is 0 in all of them.
TokenGrads random_token_grads(int64_t tokens, uint64_t seed, const std::array<bool, 5>& terms);
/// Returns the same numbers for the oracle, with 0 in rows that take no part.
oracle::TokenGradients oracle_grads(const TokenGrads& grads, const oracle::Problem& problem);

/// Its token gradients are `grads`, which outlive it. It notes which rows it saw, in their order.
class GivenGradients final : public TokenLoss {
 public:
  GivenGradients(const TokenGrads& grads, StatsRequest request, std::vector<int64_t> groups = {})
      : grads_(grads), request_(request), groups_(std::move(groups)) {}

  StatsRequest needs() const override { return request_; }
  GradsFilled gradients() const override {
    return {!grads_.lse.empty(), !grads_.entropy.empty(), !grads_.cross.empty(), !grads_.outside.empty()};
  }
  std::span<const int64_t> groups() const override { return groups_; }
  void evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) override;

  /// What it noted: calls of evaluate(), the rows in the order of the calls, and the logp that each had then.
  int calls() const { return calls_; }
  const std::vector<int64_t>& rows() const { return rows_; }
  const std::vector<double>& logp() const { return logp_; }

 private:
  const TokenGrads& grads_;
  StatsRequest request_;
  std::vector<int64_t> groups_;
  int calls_ = 0;
  std::vector<int64_t> rows_;
  std::vector<double> logp_;
};

}  // namespace logitless::testing
