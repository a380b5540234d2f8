// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How partial statistics of rows travel between ranks: 16 bytes a row and slice in float32, and
// what a request asks for beyond log-probabilities.
#pragma once

#include <cstddef>
#include <cstring>

#include "kernels/row_stats.h"
#include "problem/token_problem.h"

namespace logitless::stats {

class RowStatsWire {
 public:
  explicit RowStatsWire(const problem::TokenProblem& problem) : problem_(problem) {
    kernels::RowStats any;
    each(any, [&](const auto&, auto as) { bytes_ += sizeof as; });
  }

  /// Returns the bytes of a row.
  size_t bytes() const { return bytes_; }

  void put(kernels::RowStats stats, std::byte* to) const {
    each(stats, [&](const auto& value, auto as) {
      as = static_cast<decltype(as)>(value);
      std::memcpy(to, &as, sizeof as);
      to += sizeof as;
    });
  }
  kernels::RowStats get(const std::byte* from) const {
    kernels::RowStats stats;
    each(stats, [&](auto& value, auto as) {
      std::memcpy(&as, from, sizeof as);
      value = as;
      from += sizeof as;
    });
    return stats;
  }

 private:
  // Visits what is sent of a row. The largest logit and the target's are numbers of the type of the logits.
  template <class Visit>
  void each(kernels::RowStats& stats, const Visit& visit) const {
    const bool wide = problem_.in_double();
    const auto logit = [&](double& value) {
      if (!wide) return visit(value, float());
      visit(value, double());
    };
    logit(stats.max);
    logit(stats.chosen);
    visit(stats.rest, double());
    if (problem_.request.entropy) visit(stats.weighted, double());
    if (problem_.request.cross) {
      visit(stats.cross, double());
      visit(stats.cross_mass, double());
    }
    if (problem_.request.argmax) visit(stats.argmax, int64_t());
  }

  const problem::TokenProblem& problem_;
  size_t bytes_ = 0;
};

}  // namespace logitless::stats
