// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The largest logits of rows. A row has one list, which all of its stretches share, so that the memory does
// not grow with them. The list is a set under a strict total order, so threads may add to it in any order.
#pragma once

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
  explicit TopPartials(const problem::TokenProblem& problem) : problem_(problem), k_(problem.request.top_k) {}

  /// Returns the list of the row at a place.
  kernels::TopList list(int64_t place) const {
    return {entries_ + place * kernels::top_capacity(k_), states_ + place, k_};
  }
  /// Lets the list of the row at a place, which may not be there, come into the cache.
  void prefetch(int64_t place) const {
    if (place < rows_) __builtin_prefetch(states_ + place);
  }
  /// Who adds to a list while others may holds its lock.
  std::unique_lock<std::mutex> lock(int64_t place) const { return locks_.lock(place); }

  void take(core::Arena& arena, int64_t rows, int64_t stretches) override;
  void begin(int64_t place, int64_t rows) const override;
  /// The stretches are joined already: this puts the list in order.
  void combine(int64_t row, int64_t place) const override;

  size_t wire_bytes(int64_t row) const override;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  std::byte* put_nothing(int64_t row, std::byte* to) const override;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  // Writes `count` entries, and those of places that no token has, k in all.
  std::byte* put_entries(const kernels::TopEntry* entries, int64_t count, std::byte* to) const;

  const problem::TokenProblem& problem_;
  const int64_t k_;
  int64_t rows_ = 0;
  kernels::TopEntry* entries_ = nullptr;  // [rows, top_capacity(k)]
  kernels::TopState* states_ = nullptr;   // [rows]
  mutable core::RowLocks locks_;
};

}  // namespace logitless::fold
