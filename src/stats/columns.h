// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The columns of the statistics and of their gradients. They are plain vectors because callers may receive
// them.
#pragma once

#include <cstddef>
#include <vector>

#include "core/store.h"
#include "logitless/token_stats.h"

namespace logitless::stats {

/// One of the token gradients. Code that iterates over all of them uses kGradColumns.
struct GradColumn {
  const char* name;
  std::vector<double> TokenGrads::*column;
  bool of_picks = false;  // one entry per pick instead of per row
};
inline constexpr GradColumn kGradColumns[] = {
    {"grads.logp", &TokenGrads::logp, true},      {"grads.lse", &TokenGrads::lse},
    {"grads.entropy", &TokenGrads::entropy},      {"grads.cross", &TokenGrads::cross},
    {"grads.outside", &TokenGrads::outside},      {"grads.divergence", &TokenGrads::divergence},
    {"grads.square_sum", &TokenGrads::square_sum}};

/// Calls visit(column) for each numeric column that a teacher adds, in any order.
template <class Stats, class Visit>
void each_divergence_column(Stats& of, const Visit& visit) {
  for (auto* column : {&of.value, &of.overlap, &of.mean, &of.log_sum, &of.teacher_max_logit, &of.teacher_log_sum,
                       &of.entropy, &of.teacher_entropy}) {
    visit(*column);
  }
}

/// Which columns the caller of a public function receives.
struct Returned {
  bool stats = false;
  bool grads = false;
  bool expected = false;  // of the statistics, if the plan computes them
};

/// The statistics and gradients of a call. Columns that its caller receives are allocated on the heap. The
/// others are taken from the store that was current at construction, and returned to it.
struct Columns {
  TokenStats stats;
  TokenGrads grads;
  std::vector<double> picked;  // per pick: the capped logit from which stats.logp is computed

  explicit Columns(Returned returned = {})
      : stats_store_(returned.stats ? nullptr : core::current_store()),
        grads_store_(returned.grads ? nullptr : core::current_store()),
        store_(core::current_store()) {}
  Columns(Columns&&) = default;
  Columns& operator=(Columns&&) = default;
  ~Columns() {
    for (auto* column : {&stats.logp, &stats.lse, &stats.entropy, &stats.cross, &stats.outside, &stats.outside_max,
                         &stats.max_logit, &stats.log_sum, &stats.top_logps, &stats.square_sum, &stats.drawn_logps}) {
      give_back(stats_store_, *column);
    }
    each_divergence_column(stats.divergence, [this](auto& column) { give_back(stats_store_, column); });
    for (auto* column :
         {&stats.argmax, &stats.rank, &stats.top_ids, &stats.drawn_ids, &stats.divergence.teacher_argmax}) {
      give_back(stats_store_, *column);
    }
    for (const GradColumn& grad : kGradColumns) give_back(grads_store_, grads.*grad.column);
    give_back(store_, picked);
  }

  /// Return a vector of `count` times `value` for a column of the statistics, and of `count` zeros for a
  /// column of the gradients.
  template <class T>
  std::vector<T> take_stats(size_t count, T value) const {
    return take(stats_store_, count, value);
  }
  std::vector<double> take_grads(size_t count) const { return take(grads_store_, count, 0.0); }
  void take_picked(size_t count) { picked = take(store_, count, 0.0); }

 private:
  template <class T>
  static std::vector<T> take(core::Store* store, size_t count, T value) {
    return store ? store->take_column(count, value) : std::vector<T>(count, value);
  }
  template <class T>
  static void give_back(core::Store* store, std::vector<T>& column) noexcept {
    if (store) store->give_back(column);
  }

  core::Store* stats_store_;
  core::Store* grads_store_;
  core::Store* store_;  // of columns that no caller receives
};

}  // namespace logitless::stats
