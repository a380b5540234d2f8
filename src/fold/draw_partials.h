// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The drawn ids of rows. All ranges of a row share its draws, so the memory does not grow with their number.
// An id replaces another one by a strict total order, so threads may offer ids in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "core/arena.h"
#include "core/row_locks.h"
#include "fold/partials.h"
#include "fold/top_partials.h"
#include "kernels/draw_kernels.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// Returns the draws of a row, whose best ids are in `best`.
kernels::RowDraws row_draws(const problem::TokenProblem& problem, int64_t row, kernels::DrawEntry* best);

/// First walk: draws from all vocabulary entries.
class DrawPartials final : public Partials {
 public:
  explicit DrawPartials(const problem::TokenProblem& problem) : problem_(problem), draws_(problem.request.draws) {}

  int64_t draws() const { return draws_; }
  /// Copies the best ids of the row at `place` to `mine`, [draws].
  void load(int64_t place, kernels::DrawEntry* mine) const;
  /// Offers the ids in `mine`, [draws], to the row at `place`.
  void merge(int64_t place, const kernels::DrawEntry* mine) const;

  void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges) override;
  void begin(int64_t place, int64_t rows) const override;
  /// The ranges need no merging.
  void combine(int64_t, int64_t) const override {}

  /// Logits and ids are sent. The receiver computes the noise again.
  size_t wire_bytes(int64_t row) const override;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  std::byte* put_empty(int64_t row, std::byte* to) const override;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  kernels::DrawEntry* best(int64_t place) const { return entries_ + place * draws_; }

  const problem::TokenProblem& problem_;
  const int64_t draws_;
  kernels::DrawEntry* entries_ = nullptr;  // [rows, draws]
  mutable core::RowLocks locks_;
};

/// First walk: draws from the largest logits of a row. They are made from the row's list when it is complete,
/// so nothing else is sent between ranks.
class TopDrawPartials final : public Partials {
 public:
  TopDrawPartials(const problem::TokenProblem& problem, const TopPartials& top) : problem_(problem), top_(top) {}

  void take(core::Arena&, int64_t, int64_t) override {}
  void combine(int64_t, int64_t) const override {}
  size_t wire_bytes(int64_t) const override { return 0; }
  std::byte* put(int64_t, int64_t, const stats::Columns&, std::byte* to) const override { return to; }
  std::byte* put_empty(int64_t, std::byte* to) const override { return to; }
  const std::byte* join(int64_t, int64_t, bool, const std::byte* from, stats::Columns&) const override { return from; }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  // Returns how many entries of the sorted list are kept.
  int64_t kept(int64_t row, const kernels::TopList& list) const;

  const problem::TokenProblem& problem_;
  const TopPartials& top_;
};

}  // namespace logitless::fold
