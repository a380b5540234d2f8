// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/given_gradients.h"

#include "support/inputs.h"

namespace logitless::testing {
namespace {

// The terms of token gradients, in the order of `terms` above.
constexpr std::vector<double> TokenGrads::*kGradColumns[] = {&TokenGrads::logp, &TokenGrads::lse, &TokenGrads::entropy,
                                                             &TokenGrads::cross, &TokenGrads::outside};
constexpr oracle::VectorXd oracle::TokenGradients::*kOracleTerms[] = {
    &oracle::TokenGradients::logp, &oracle::TokenGradients::lse, &oracle::TokenGradients::entropy,
    &oracle::TokenGradients::cross, &oracle::TokenGradients::outside};

}  // namespace

TokenGrads random_token_grads(int64_t tokens, uint64_t seed, const std::array<bool, 5>& terms) {
  TokenGrads grads;
  const std::vector<double> zeros = random_token_gradients(tokens, seed);
  for (size_t term = 0; term < terms.size(); ++term) {
    if (!terms[term]) continue;
    std::vector<double>& column = grads.*kGradColumns[term];
    column = random_token_gradients(tokens, seed + term + 1);
    for (size_t i = 0; i < zeros.size(); ++i) {
      if (zeros[i] == 0) column[i] = 0;
    }
  }
  return grads;
}

oracle::TokenGradients oracle_grads(const TokenGrads& grads, const oracle::Problem& problem) {
  oracle::TokenGradients out(problem.tokens());
  for (size_t term = 0; term < std::size(kGradColumns); ++term) {
    const std::vector<double>& column = grads.*kGradColumns[term];
    for (int64_t i = 0; i < problem.tokens() && !column.empty(); ++i) {
      if (problem.takes_part(i)) (out.*kOracleTerms[term])[i] = column[static_cast<size_t>(i)];
    }
  }
  return out;
}

void GivenGradients::evaluate(std::span<const int64_t> rows, const TokenStats& stats, TokenGrads& grads) {
  ++calls_;
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    rows_.push_back(row);
    logp_.push_back(stats.logp[i]);
    grads.logp[i] = 0;
    for (const auto term : kGradColumns) {
      if (!(grads_.*term).empty()) (grads.*term)[i] = (grads_.*term)[i];
    }
  }
}

}  // namespace logitless::testing
