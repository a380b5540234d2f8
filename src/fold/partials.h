// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The partial results of folds: one per row and range of the vocabulary. A class here defines how the ranges
// are merged, how a row is sent between ranks, and which columns of the statistics it fills. The folds that
// compute partials from tiles are in folds.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/arena.h"
#include "kernels/divergence_kernels.h"
#include "kernels/row_stats.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// The partials of one fold. `place` is a row's index among the rows whose partials are in memory; `row` is
/// its number in the call. All functions except take() may be called by several threads at once, for
/// different rows.
class Partials {
 public:
  virtual ~Partials() = default;

  /// Takes memory for `rows` rows with `vocab_ranges` ranges each.
  virtual void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges) = 0;
  /// Called on one thread before the first tile of the rows with places [place, place + rows).
  virtual void begin([[maybe_unused]] int64_t place, [[maybe_unused]] int64_t rows) const {}
  /// Called after the last tile of a row. Merges the row's ranges in order, so that the result does not
  /// depend on the number of threads. The functions below use the merged result.
  virtual void combine(int64_t row, int64_t place) const = 0;

  /// Returns how many bytes put() writes for a row.
  virtual size_t wire_bytes(int64_t row) const = 0;
  /// Writes the merged result of a row to `to` for sending, and returns the end. Picks are read from
  /// `columns` and included.
  virtual std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const = 0;
  /// Writes what a slice without vocabulary entries sends, and returns the end.
  virtual std::byte* put_empty(int64_t row, std::byte* to) const = 0;
  /// Merges a row received from the next slice of the vocabulary into its result, and returns the end of the
  /// bytes read. `first`: this is the first slice, so the result is overwritten.
  virtual const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                                stats::Columns& columns) const = 0;

  /// Writes the statistics of a row.
  virtual void finish(int64_t row, int64_t place, stats::Columns& columns) const = 0;
};

/// Partials with one T per row and range. The bytes of T are sent, unless a derived class sends fewer.
template <class T>
class PartialsOf : public Partials {
 public:
  explicit PartialsOf(const problem::TokenProblem& problem) : problem_(problem) {}

  /// Returns the partials of one range, beginning with the row at `place`; rows are contiguous.
  T* of(int64_t vocab_range, int64_t place) const { return data_ + vocab_range * rows_ + place; }

  void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges) final {
    data_ = arena.take<T>(rows * vocab_ranges);
    rows_ = rows;
    vocab_ranges_ = vocab_ranges;
  }
  void combine(int64_t row, int64_t place) const final {
    for (int64_t s = 1; s < vocab_ranges_; ++s) join_parts(row, *of(s, place), *of(0, place));
  }

  size_t wire_bytes(int64_t) const override { return sizeof(T); }
  std::byte* put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const override {
    return put_bytes(*of(0, place), to);
  }
  std::byte* put_empty(int64_t, std::byte* to) const override { return put_bytes(T{}, to); }
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from, stats::Columns&) const override {
    T part;
    std::memcpy(&part, from, sizeof part);
    join_next(row, place, first, part);
    return from + sizeof part;
  }

 protected:
  const problem::TokenProblem& problem() const { return problem_; }
  /// Merges the next part into a row's result; `first`: overwrites the result.
  void join_next(int64_t row, int64_t place, bool first, const T& part) const {
    T& whole = *of(0, place);
    if (first) {
      whole = part;
    } else {
      join_parts(row, part, whole);
    }
  }
  /// Merges `part`, which follows `whole`, into `whole`.
  virtual void join_parts(int64_t row, const T& part, T& whole) const = 0;

 private:
  static std::byte* put_bytes(const T& part, std::byte* to) {
    std::memcpy(to, &part, sizeof part);
    return to + sizeof part;
  }

  const problem::TokenProblem& problem_;
  T* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t vocab_ranges_ = 0;
};

/// First walk: log-sum-exp, picks, and the statistics that are computed with them.
class SoftmaxPartials final : public PartialsOf<kernels::RowStats> {
 public:
  using PartialsOf::PartialsOf;

  size_t wire_bytes(int64_t row) const override;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  std::byte* put_empty(int64_t row, std::byte* to) const override;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const override;
  // Visits the fields that are sent for a row. Logits are sent in the type of the sums.
  template <class Visit>
  void each_sent(kernels::RowStats& stats, Visit& visit) const;
  template <class Visit>
  void logit(double& value, Visit& visit) const;
  // Writes the statistics, and value_of(pick) as the logit of each pick.
  template <class ValueOf>
  std::byte* put(int64_t row, kernels::RowStats stats, const ValueOf& value_of, std::byte* to) const;
};

/// First walk: another log-sum-exp per row, over other columns, of another head or at another temperature. It
/// is finished after SoftmaxPartials.
class LogSumPartials : public PartialsOf<kernels::RowStats> {
 public:
  using PartialsOf::PartialsOf;

  /// Returns the temperature that capped logits are divided by.
  virtual double temperature(int64_t row) const = 0;
  virtual bool wants_entropy() const { return false; }
  virtual bool wants_argmax() const { return false; }
  virtual bool is_teacher() const { return false; }

  size_t wire_bytes(int64_t row) const final;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const final;
  std::byte* put_empty(int64_t row, std::byte* to) const final;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const final;

 private:
  void join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const final;
  template <class Visit>
  void each_sent(kernels::RowStats& stats, Visit& visit) const;
};

/// The log-sum-exp over all vocabulary entries except the row's picks.
class OutsidePartials final : public LogSumPartials {
 public:
  using LogSumPartials::LogSumPartials;

  double temperature(int64_t row) const override { return problem().logit_temperature(row); }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;
};

/// The log-sum-exp over all vocabulary entries at half the temperature: the logarithm of Σ exp(2 a).
class SquarePartials final : public LogSumPartials {
 public:
  using LogSumPartials::LogSumPartials;

  double temperature(int64_t row) const override { return problem().logit_temperature(row) / 2; }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;
};

/// The head that a distribution belongs to.
enum class Side { kStudent, kTeacher };

/// The log-sum-exp of one side at its temperature in the divergence, with its entropy and the teacher's
/// argmax if requested.
class SidePartials final : public LogSumPartials {
 public:
  SidePartials(const problem::TokenProblem& problem, Side side) : LogSumPartials(problem), side_(side) {}

  bool is_teacher() const override { return side_ == Side::kTeacher; }
  double temperature(int64_t row) const override;
  bool wants_entropy() const override { return problem().divergence->entropy; }
  bool wants_argmax() const override { return is_teacher() && problem().divergence->argmax; }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  Side side_;
};

/// Second walk, with a teacher: the sums of the divergence.
class DivergencePartials final : public PartialsOf<kernels::DivergenceSums> {
 public:
  using PartialsOf::PartialsOf;

  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t, const kernels::DivergenceSums& part, kernels::DivergenceSums& whole) const override {
    whole = kernels::merge(whole, part);
  }
};

/// Second walk: the number of logits above the target's.
class AbovePartials final : public PartialsOf<int64_t> {
 public:
  using PartialsOf::PartialsOf;

  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t, const int64_t& part, int64_t& whole) const override { whole += part; }
};

}  // namespace logitless::fold
