// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The largest logits of rows. All ranges of a row share one list, so the memory does not grow with their
// number. Ties are broken by a strict total order, so threads may add to the list in any order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/arena.h"
#include "core/row_locks.h"
#include "fold/partials.h"
#include "kernels/top_kernels.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

class TopPartials final : public Partials {
 public:
  explicit TopPartials(const problem::TokenProblem& problem) : problem_(problem), k_(list_length(problem.request)) {}

  /// Returns how many of the largest logits a row's list must hold; 0: lists are not needed.
  static int64_t list_length(const StatsRequest& request) { return std::max(request.top_k, request.draw_top_k); }
  /// Returns the list of the row at `place`.
  kernels::TopList list(int64_t place) const {
    return {entries_ + place * kernels::top_capacity(k_), states_ + place, k_};
  }
  /// Prefetches the list of the row at `place`, which may be past the last row.
  void prefetch(int64_t place) const {
    if (place < rows_) __builtin_prefetch(states_ + place);
  }
  /// Locks the list at `place`. Required for adding to a list while other threads may add to it.
  std::unique_lock<std::mutex> lock(int64_t place) const { return locks_.lock(place); }

  void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges) override;
  void begin(int64_t place, int64_t rows) const override;
  /// Sorts the list. The ranges need no merging.
  void combine(int64_t row, int64_t place) const override;

  size_t wire_bytes(int64_t row) const override;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  std::byte* put_empty(int64_t row, std::byte* to) const override;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  // Writes `count` entries and then empty ones, k in total.
  std::byte* put_entries(const kernels::TopEntry* entries, int64_t count, std::byte* to) const;

  const problem::TokenProblem& problem_;
  const int64_t k_;
  int64_t rows_ = 0;
  kernels::TopEntry* entries_ = nullptr;  // [rows, top_capacity(k)]
  kernels::TopState* states_ = nullptr;   // [rows]
  mutable core::RowLocks locks_;
};

}  // namespace logitless::fold
