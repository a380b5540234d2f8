// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The partial results of folds: one for each row and stretch of the vocabulary. They know how stretches join,
// how a row's travels between ranks, and which columns of the statistics it becomes. What makes them of tiles
// stands in folds.h.
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

/// Partials of one fold. `place` is that of a row among the rows whose partials are kept at a time; `row` is
/// its number in the call. Several threads may call everything but take() at once, for different rows.
class Partials {
 public:
  virtual ~Partials() = default;

  /// Takes the room for `rows` rows of `stretches` stretches each.
  virtual void take(core::Arena& arena, int64_t rows, int64_t stretches) = 0;
  /// Comes before the first tile of rows whose places are [place, place + rows), on one thread.
  virtual void begin([[maybe_unused]] int64_t place, [[maybe_unused]] int64_t rows) const {}
  /// Comes behind the last tile of a row. Joins its stretches, in their order, whatever the number of
  /// threads. What follows reads the whole.
  virtual void combine(int64_t row, int64_t place) const = 0;

  /// Returns how many bytes a row has on its way to other ranks.
  virtual size_t wire_bytes(int64_t row) const = 0;
  /// Writes the whole of a row as it travels, and returns the end of that. Picks stand in `columns` and
  /// travel with it.
  virtual std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const = 0;
  /// Writes what a slice without vocabulary entries sends, and returns the end of that.
  virtual std::byte* put_nothing(int64_t row, std::byte* to) const = 0;
  /// Joins what has come from the next slice of the vocabulary to the whole of a row, and returns the end of
  /// what it has read; `first` says that there is nothing before it.
  virtual const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                                stats::Columns& columns) const = 0;

  /// Writes the statistics of a row.
  virtual void finish(int64_t row, int64_t place, stats::Columns& columns) const = 0;
};

/// Partials that are one T for each row and stretch. Its bytes travel, unless a class sends fewer.
template <class T>
class PartialsOf : public Partials {
 public:
  explicit PartialsOf(const problem::TokenProblem& problem) : problem_(problem) {}

  /// Returns those of the rows from `place` on over a stretch, one after the other.
  T* of(int64_t stretch, int64_t place) const { return data_ + stretch * rows_ + place; }

  void take(core::Arena& arena, int64_t rows, int64_t stretches) final {
    data_ = arena.take<T>(rows * stretches);
    rows_ = rows;
    stretches_ = stretches;
  }
  void combine(int64_t row, int64_t place) const final {
    for (int64_t s = 1; s < stretches_; ++s) join_parts(row, *of(s, place), *of(0, place));
  }

  size_t wire_bytes(int64_t) const override { return sizeof(T); }
  std::byte* put(int64_t, int64_t place, const stats::Columns&, std::byte* to) const override {
    return put_bytes(*of(0, place), to);
  }
  std::byte* put_nothing(int64_t, std::byte* to) const override { return put_bytes(T{}, to); }
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from, stats::Columns&) const override {
    T part;
    std::memcpy(&part, from, sizeof part);
    join_next(row, place, first, part);
    return from + sizeof part;
  }

 protected:
  const problem::TokenProblem& problem() const { return problem_; }
  /// Joins the next part to the whole of a row; `first` says that there is nothing before it.
  void join_next(int64_t row, int64_t place, bool first, const T& part) const {
    T& whole = *of(0, place);
    if (first) {
      whole = part;
    } else {
      join_parts(row, part, whole);
    }
  }
  /// Lets `whole` be the join of itself and the part behind it.
  virtual void join_parts(int64_t row, const T& part, T& whole) const = 0;

 private:
  static std::byte* put_bytes(const T& part, std::byte* to) {
    std::memcpy(to, &part, sizeof part);
    return to + sizeof part;
  }

  const problem::TokenProblem& problem_;
  T* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t stretches_ = 0;
};

/// The first walk's: log-sum-exp, picks, and the functionals that are known with them.
class SoftmaxPartials final : public PartialsOf<kernels::RowStats> {
 public:
  using PartialsOf::PartialsOf;

  size_t wire_bytes(int64_t row) const override;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const override;
  std::byte* put_nothing(int64_t row, std::byte* to) const override;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const override;
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const override;
  // Visits what is sent of a row. Logits travel in their own type.
  template <class Visit>
  void each_sent(kernels::RowStats& stats, Visit& visit) const;
  template <class Visit>
  void logit(double& value, Visit& visit) const;
  // Writes statistics, and the logits of the picks, as value_of(pick) has them.
  template <class ValueOf>
  std::byte* put(int64_t row, kernels::RowStats stats, const ValueOf& value_of, std::byte* to) const;
};

/// The first walk's: one more log-sum-exp of a row, of other columns, another head or another temperature
/// than that of SoftmaxPartials, after which it is finished.
class LogSumPartials : public PartialsOf<kernels::RowStats> {
 public:
  using PartialsOf::PartialsOf;

  /// Returns the temperature that final logits have.
  virtual double temperature(int64_t row) const = 0;
  virtual bool wants_entropy() const { return false; }
  virtual bool wants_argmax() const { return false; }
  virtual bool is_teacher() const { return false; }

  size_t wire_bytes(int64_t row) const final;
  std::byte* put(int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const final;
  std::byte* put_nothing(int64_t row, std::byte* to) const final;
  const std::byte* join(int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const final;

 private:
  void join_parts(int64_t row, const kernels::RowStats& part, kernels::RowStats& whole) const final;
  template <class Visit>
  void each_sent(kernels::RowStats& stats, Visit& visit) const;
};

/// That of all vocabulary entries but the row's picks.
class OutsidePartials final : public LogSumPartials {
 public:
  using LogSumPartials::LogSumPartials;

  double temperature(int64_t row) const override { return problem().logit_temperature(row); }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;
};

/// That of all vocabulary entries at half the temperature: the logarithm of Σ exp(2 a).
class SquarePartials final : public LogSumPartials {
 public:
  using LogSumPartials::LogSumPartials;

  double temperature(int64_t row) const override { return problem().logit_temperature(row) / 2; }
  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;
};

/// Who has a distribution.
enum class Side { kStudent, kTeacher };

/// That of one side at the temperature of a divergence, with its entropy where it is asked for, and the
/// teacher's argmax.
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

/// The second walk's, beside a teacher: the sums of the divergence.
class DivergencePartials final : public PartialsOf<kernels::DivergenceSums> {
 public:
  using PartialsOf::PartialsOf;

  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t, const kernels::DivergenceSums& part, kernels::DivergenceSums& whole) const override {
    whole = kernels::merge(whole, part);
  }
};

/// The second walk's: how many logits are above the target's.
class AbovePartials final : public PartialsOf<int64_t> {
 public:
  using PartialsOf::PartialsOf;

  void finish(int64_t row, int64_t place, stats::Columns& columns) const override;

 private:
  void join_parts(int64_t, const int64_t& part, int64_t& whole) const override { whole += part; }
};

}  // namespace logitless::fold
