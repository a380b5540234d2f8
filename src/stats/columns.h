// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// These are the columns of statistics and of their gradients. Callers get them, so they are plain vectors;
// those that no caller gets go back to the store of the call.
#pragma once

#include <cstddef>
#include <vector>

#include "core/store.h"
#include "logitless/token_stats.h"

namespace logitless::stats {

/// Returns a column of `count` entries, in memory of the current store.
template <class T>
std::vector<T> take_column(size_t count, T value) {
  core::Store* store = core::current_store();
  return store ? store->take_column(count, value) : std::vector<T>(count, value);
}

/// A term is one of the token gradients; kTerms is for all that goes through them one by one.
struct Term {
  const char* name;
  std::vector<double> TokenGrads::*column;
};
inline constexpr Term kTerms[] = {{"grads.logp", &TokenGrads::logp},
                                  {"grads.lse", &TokenGrads::lse},
                                  {"grads.entropy", &TokenGrads::entropy},
                                  {"grads.prior", &TokenGrads::prior}};

/// These are the statistics and gradients of a call. What is not moved out of them goes back to the store
/// that was current when they were made.
struct Columns {
  TokenStats stats;
  TokenGrads grads;

  Columns() : store_(core::current_store()) {}
  Columns(Columns&&) = default;
  Columns& operator=(Columns&&) = default;
  ~Columns() {
    if (!store_) return;
    for (auto* column : {&stats.logp, &stats.lse, &stats.entropy, &stats.prior, &stats.max_logit, &stats.log_sum}) {
      store_->give_back(*column);
    }
    for (const Term& term : kTerms) store_->give_back(grads.*term.column);
    for (auto* column : {&stats.argmax, &stats.rank}) store_->give_back(*column);
  }

 private:
  core::Store* store_;
};

}  // namespace logitless::stats
