// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Feeds the library's sequence losses fabricated token statistics. For tests that see the library's sources.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "loss/sequences.h"
#include "oracle/preference_oracle.h"
#include "support/compare.h"

namespace logitless::testing {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kRelative = 1e-12;

inline loss::SequenceTokens tokens_of(const oracle::SequenceBatch& batch) {
  loss::SequenceTokens tokens;
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    tokens.counts.push_back(batch.count(s));
    for (int64_t i = batch.offsets[s]; i < batch.offsets[s + 1]; ++i) {
      tokens.targets.push_back(batch.takes_part[i] ? 0 : loss::kNoTarget);
      tokens.sequence.push_back(s);
    }
  }
  return tokens;
}

// NaN where nothing may be read.
inline TokenStats stats_of(const oracle::SequenceBatch& batch, const loss::SequenceTokens& tokens) {
  TokenStats stats;
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const bool active = tokens.targets[i] != loss::kNoTarget;
    stats.logp.push_back(active ? batch.logp[i] : kNaN);
    stats.entropy.push_back(active ? batch.entropy[i] : kNaN);
    if (!batch.square_sums.empty()) stats.square_sum.push_back(active ? batch.square_sums[i] : kNaN);
  }
  return stats;
}

// Calls evaluate() with these groups of rows, one after the other.
template <class Loss>
std::vector<double> evaluate(Loss& loss, const TokenStats& stats, const std::vector<std::vector<int64_t>>& calls) {
  TokenGrads grads;
  grads.logp.assign(stats.logp.size(), kNaN);
  for (const std::vector<int64_t>& rows : calls) loss.evaluate(rows, stats, grads);
  for (size_t i = 0; i < stats.logp.size(); ++i) {
    if (loss.tokens().targets[i] == loss::kNoTarget) {
      EXPECT_TRUE(std::isnan(grads.logp[i])) << "the gradient of a row without a part was written: " << i;
      grads.logp[i] = 0;
    }
  }
  return grads.logp;
}

// The rows that take part: all at once, or those of each value of groups() by themselves, last group first.
template <class Loss>
std::vector<std::vector<int64_t>> calls_of(const Loss& loss, bool by_group) {
  std::vector<std::vector<int64_t>> calls(1);
  const std::span<const int64_t> groups = loss.groups();
  for (int64_t i = 0; i < loss.tokens().tokens(); ++i) {
    if (loss.tokens().targets[i] == loss::kNoTarget) continue;
    const size_t call = by_group ? static_cast<size_t>(groups.empty() ? i : groups[i]) : 0;
    if (calls.size() <= call) calls.resize(call + 1);
    calls[call].push_back(i);
  }
  calls.erase(std::remove_if(calls.begin(), calls.end(), [](const auto& rows) { return rows.empty(); }), calls.end());
  std::reverse(calls.begin(), calls.end());
  return calls;
}

// The reference's sums, NaN where nothing may be read.
inline core::Array<double> reference_of(const oracle::SequenceBatch& batch, const loss::SequenceTokens& tokens) {
  core::Array<double> reference(batch.reference.begin(), batch.reference.end());
  for (size_t s = 0; s < reference.size(); ++s) {
    if (tokens.counts[s] == 0) reference[s] = kNaN;
  }
  return reference;
}

// Relative to what is added up: the largest term of a sum that may cancel.
inline void expect_close(const std::string& what, double got, double want, double scale = 0) {
  expect_near(what, got, want, kRelative * std::max(std::abs(want), scale));
}

}  // namespace logitless::testing
