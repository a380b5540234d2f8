// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The partial results of folds: one for each row and vocabulary segment. They know how segments join, how a
// row's travels between ranks, and which columns of the statistics it becomes. What makes them of tiles
// stands in folds.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/arena.h"
#include "kernels/row_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// Partials of one fold. `place` is that of a row among the rows whose partials are kept at a time; `row` is
/// its number in the call. Several threads may call everything but take() at once, for different rows.
class Partials {
 public:
  virtual ~Partials() = default;

  /// Takes the room for `rows` rows of `segments` segments each.
  virtual void take(core::Arena& arena, int64_t rows, int64_t segments) = 0;
  /// Joins the segments of a row, in their order, whatever the number of threads. What follows reads the
  /// whole.
  virtual void combine(int64_t row, int64_t place) const = 0;

  /// Returns how many bytes a row has on its way to other ranks.
  virtual size_t wire_bytes(int64_t row) const = 0;
  /// Writes the whole of a row as it travels. Picks stand in `columns` and travel with it.
  virtual void put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const = 0;
  /// Joins what has come from the next slice of the vocabulary to the whole of a row; `first` says that there
  /// is nothing before it.
  virtual void join(int64_t row, int64_t place, bool first, const std::byte* from, stats::Columns& columns) const = 0;
  /// Writes what a slice without vocabulary entries sends.
  virtual void put_nothing(int64_t row, std::byte* to) const = 0;

  /// Writes the statistics of a row.
  virtual void finish(int64_t row, int64_t place, stats::Columns& columns) const = 0;
};

/// The first walk's: log-sum-exp, picks, and the functionals that are known with them.
class SoftmaxPartials final : public Partials {
 public:
  explicit SoftmaxPartials(const problem::TokenProblem& problem) : problem_(problem) {}

  /// Returns those of the rows from `place` on over a segment, one after the other.
  kernels::RowStats* of(int64_t segment, int64_t place) const { return data_ + segment * rows_ + place; }

  void take(core::Arena& arena, int64_t rows, int64_t segments) override;
  void combine(int64_t row, int64_t place) const override;
  size_t wire_bytes(int64_t row) const override;
  void put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  void join(int64_t row, int64_t place, bool first, const std::byte* from, stats::Columns& columns) const override;
  void put_nothing(int64_t row, std::byte* to) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  // Visits what is sent of a row. Logits travel in their own type.
  template <class Visit>
  void each_sent(kernels::RowStats& stats, Visit& visit) const;
  template <class Visit>
  void logit(double& value, Visit& visit) const;
  // Writes statistics, and the logits of the picks, as value_of(pick) has them.
  template <class ValueOf>
  void put(int64_t row, kernels::RowStats stats, const ValueOf& value_of, std::byte* to) const;

  const problem::TokenProblem& problem_;
  kernels::RowStats* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t segments_ = 0;
};

/// The second walk's: how many logits are above the target's.
class AbovePartials final : public Partials {
 public:
  explicit AbovePartials(const problem::TokenProblem& problem) : problem_(problem) {}

  int64_t* of(int64_t segment, int64_t place) const { return data_ + segment * rows_ + place; }

  void take(core::Arena& arena, int64_t rows, int64_t segments) override;
  void combine(int64_t row, int64_t place) const override;
  size_t wire_bytes(int64_t row) const override;
  void put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  void join(int64_t row, int64_t place, bool first, const std::byte* from, stats::Columns& columns) const override;
  void put_nothing(int64_t row, std::byte* to) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  const problem::TokenProblem& problem_;
  int64_t* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t segments_ = 0;
};

}  // namespace logitless::fold
