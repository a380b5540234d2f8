// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "oracle/policy_choices.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace logitless::oracle {
namespace {

// Returns the number of tokens to choose.
size_t most_of(const Numbers& covariances, const PolicyLoss& options) {
  return static_cast<size_t>(std::max(1.0, std::floor(options.cov_share * static_cast<double>(covariances.size()))));
}

// Returns all positions, sorted by descending number; ties keep their order.
std::vector<size_t> descending(const Numbers& numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return numbers[i].value > numbers[j].value; });
  return order;
}

uint64_t split_mix(uint64_t state) {
  state += 0x9E3779B97F4A7C15u;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  state = (state ^ state >> 27) * 0x94D049BB133111EBu;
  return state ^ state >> 31;
}

}  // namespace

std::vector<size_t> large_moments(const Numbers& moments, double threshold) {
  std::vector<size_t> dropped;
  if (std::any_of(moments.begin(), moments.end(), [](const Number& x) { return std::isnan(x.value); })) return dropped;
  std::vector<size_t> rest = descending(moments);
  while (rest.size() > 1) {
    Number sum;
    for (const size_t k : rest) sum = sum + moments[k];
    if ((sum / static_cast<double>(rest.size())).value < threshold) break;
    dropped.push_back(rest.front());
    rest.erase(rest.begin());
  }
  return dropped;
}

std::vector<size_t> tokens_to_drop(const Numbers& covariances, const std::vector<bool>& is_clipped,
                                   const PolicyLoss& options) {
  const uint64_t seed = split_mix(static_cast<uint64_t>(options.cov_seed));
  const auto key = [&](size_t k) { return split_mix(seed + k); };
  std::vector<size_t> candidates;
  for (size_t k = 0; k < covariances.size(); ++k) {
    const double covariance = covariances[k].value;
    if (covariance > options.cov_low && covariance < options.cov_high && !is_clipped[k]) candidates.push_back(k);
  }
  std::sort(candidates.begin(), candidates.end(), [&](size_t i, size_t j) { return key(i) < key(j); });
  candidates.resize(std::min(candidates.size(), most_of(covariances, options)));
  return candidates;
}

std::vector<size_t> tokens_to_penalise(const Numbers& covariances, const PolicyLoss& options) {
  std::vector<size_t> order = descending(covariances);
  order.resize(std::min(order.size(), most_of(covariances, options)));
  return order;
}

}  // namespace logitless::oracle
