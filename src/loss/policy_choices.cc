// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Decisions that depend on all tokens of a batch: which tokens keep their loss, and which get another one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random_bits.h"
#include "core/store.h"
#include "loss/policy.h"

namespace logitless::loss {

// Computes the (1 − top_entropy_quantile) quantile of the entropies, with linear interpolation.
void CompletionLoss::find_entropy_threshold(std::span<const int64_t> rows, const TokenStats& stats) {
  core::Array<double> entropies;
  entropies.reserve(rows.size());
  for (const int64_t row : rows) entropies.push_back(stats.entropy[static_cast<size_t>(row)]);
  kept_tokens_ = 0;
  if (entropies.empty()) return;
  if (std::any_of(entropies.begin(), entropies.end(), [](double entropy) { return std::isnan(entropy); })) {
    // NaN cannot be sorted; nothing is dropped, so that the loss shows it.
    entropy_threshold_ = std::numeric_limits<double>::quiet_NaN();
    kept_tokens_ = static_cast<double>(entropies.size());
    return;
  }
  std::sort(entropies.begin(), entropies.end());
  // Not (1 − q)(n − 1), because in floating point 1 − 0.7 is above 0.3, which would drop the token at the
  // quantile.
  const double last = static_cast<double>(entropies.size() - 1);
  const double at = last - options_.top_entropy_quantile * last;
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, entropies.size() - 1);
  entropy_threshold_ = entropies[below] + (at - static_cast<double>(below)) * (entropies[above] - entropies[below]);
  for (const double entropy : entropies) kept_tokens_ += entropy >= entropy_threshold_;
}

// M2PO: drops the tokens with the largest (old − sampling)² until the mean of the rest is below the
// threshold, but never all of them.
void CompletionLoss::drop_large_moments(std::span<const int64_t> rows, const TokenStats* stats) {
  struct Moment {
    double square;
    size_t token;
  };
  core::Array<Moment> moments;
  moments.reserve(rows.size());
  double sum = 0;
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const double drift = sampler_log_ratio(i, stats ? stats->logp[pick_of(i)] : 0);
    if (std::isnan(drift)) return;  // NaN cannot be sorted; nothing is dropped, so that the loss shows it
    moments.push_back({drift * drift, i});
  }
  std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.square != b.square ? a.square < b.square : a.token > b.token;
  });
  // Keeps as many tokens as possible, in ascending order.
  size_t kept = moments.empty() ? 0 : 1;
  for (size_t k = 0; k < moments.size(); ++k) {
    sum += moments[k].square;
    if (sum / static_cast<double>(k + 1) < *options_.m2_threshold) kept = k + 1;
  }
  for (size_t k = kept; k < moments.size(); ++k) marks_[moments[k].token] |= kDropped;
}

// Marks the tokens that clip_cov drops or kl_cov penalises.
void CompletionLoss::choose_by_covariance(std::span<const int64_t> rows, const TokenStats& stats) {
  const auto count = static_cast<double>(rows.size());
  // The mean of equal numbers is exactly that number, so their covariances are 0.
  const auto mean_of = [&](const auto& value) {
    const double first = rows.empty() ? 0 : value(static_cast<size_t>(rows[0]));
    double above = 0;
    for (const int64_t row : rows) above += (value(static_cast<size_t>(row)) - first) / count;
    return first + above;
  };
  const double mean_advantage = mean_of([&](size_t i) { return advantage_[i]; });
  const double mean_logp = mean_of([&](size_t i) { return stats.logp[pick_of(i)]; });
  if (!std::isfinite(mean_logp) || !std::isfinite(mean_advantage)) return;  // No covariance is a number.
  const bool drops = variant().covariance == CovarianceRule::kDrop;
  struct Candidate {
    double covariance;
    uint64_t order;
    size_t token;
  };
  core::Array<Candidate> candidates;
  uint64_t key = core::random_bits(static_cast<uint64_t>(options_.cov_seed)) - 1;
  for (const int64_t row : rows) {
    ++key;  // independent of the layout of the tokens
    const auto i = static_cast<size_t>(row);
    const double logp = stats.logp[pick_of(i)];
    const double covariance = (advantage_[i] - mean_advantage) * (logp - mean_logp);
    if (drops) {
      if (!(covariance > options_.cov_low && covariance < options_.cov_high)) continue;
      const double r = ratio(i, logp).value;
      if (advantage_[i] > 0 ? r > 1 + epsilon_high(options_) : advantage_[i] < 0 && r < least_ratio(options_)) continue;
    }
    candidates.push_back({covariance, drops ? core::random_bits(key) : 0, i});
  }
  // clip_cov chooses random candidates, kl_cov those with the largest covariance; ties go to the first.
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    if (drops) return a.order != b.order ? a.order < b.order : a.token < b.token;
    return a.covariance != b.covariance ? a.covariance > b.covariance : a.token < b.token;
  });
  const auto share = static_cast<size_t>(options_.cov_share * count);
  const size_t chosen = std::min(candidates.size(), std::max(share, size_t{1}));
  for (size_t k = 0; k < chosen; ++k) marks_[candidates[k].token] |= kChosen;
}

}  // namespace logitless::loss
