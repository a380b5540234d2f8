// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// All partials of a call, and the computation of the API's statistics from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/arena.h"
#include "fold/draw_partials.h"
#include "fold/partials.h"
#include "fold/top_partials.h"
#include "problem/token_problem.h"
#include "stats/columns.h"

namespace logitless::fold {

/// A call visits the tiles of a chunk once, and a second time if a statistic depends on results of the first
/// visit.
enum class Walk { kFirst, kSecond };

/// Lists of T per walk, in the order in which the items get each tile. Partials are also finished in that
/// order, so one may read columns that an earlier one filled.
template <class T>
class ByWalk {
 public:
  void add(Walk walk, T& item) {
    List& list = lists_[static_cast<size_t>(walk)];
    list.items.at(list.count) = &item;
    ++list.count;
  }
  std::span<T* const> of(Walk walk) const {
    const List& list = lists_[static_cast<size_t>(walk)];
    return std::span<T* const>(list.items).first(list.count);
  }

 private:
  static constexpr size_t kMost = 8;  // a fixed capacity, so that a call does not allocate the lists
  struct List {
    std::array<T*, kMost> items = {};
    size_t count = 0;
  };
  std::array<List, 2> lists_;
};

/// All partials of a call, by the walk that computes them. To add a statistic, add a member here and a fold
/// in folds.h.
class CallPartials {
 public:
  explicit CallPartials(const problem::TokenProblem& problem) : softmax(problem) {
    by_walk_.add(Walk::kFirst, softmax);
    if (TopPartials::list_length(problem.request) > 0) by_walk_.add(Walk::kFirst, top.emplace(problem));
    if (problem.request.draw_top_k > 0) {
      by_walk_.add(Walk::kFirst, top_draws.emplace(problem, *top));
    } else if (problem.request.draws > 0) {
      by_walk_.add(Walk::kFirst, draws.emplace(problem));
    }
    if (problem.request.outside) by_walk_.add(Walk::kFirst, outside.emplace(problem));
    if (problem.request.square_sum) by_walk_.add(Walk::kFirst, squares.emplace(problem));
    if (problem.request.rank) by_walk_.add(Walk::kSecond, above.emplace(problem));
    if (!problem.divergence) return;
    if (!problem.divergence->shares_softmax) by_walk_.add(Walk::kFirst, student.emplace(problem, Side::kStudent));
    by_walk_.add(Walk::kFirst, teacher.emplace(problem, Side::kTeacher));
    by_walk_.add(Walk::kSecond, divergence.emplace(problem));
  }
  CallPartials(const CallPartials&) = delete;
  CallPartials& operator=(const CallPartials&) = delete;

  SoftmaxPartials softmax;
  std::optional<TopPartials> top;
  std::optional<TopDrawPartials> top_draws;
  std::optional<DrawPartials> draws;
  std::optional<OutsidePartials> outside;
  std::optional<SquarePartials> squares;
  std::optional<AbovePartials> above;
  std::optional<SidePartials> student;  // if the divergence has its own student temperature
  std::optional<SidePartials> teacher;
  std::optional<DivergencePartials> divergence;

  std::span<Partials* const> of(Walk walk) const { return by_walk_.of(walk); }
  /// Takes memory for `rows` rows with `vocab_ranges` ranges each.
  void take(core::Arena& arena, int64_t rows, int64_t vocab_ranges) const {
    for (const Walk walk : {Walk::kFirst, Walk::kSecond}) {
      for (Partials* partials : of(walk)) partials->take(arena, rows, vocab_ranges);
    }
  }
  void begin(Walk walk, int64_t place, int64_t rows) const {
    for (const Partials* partials : of(walk)) partials->begin(place, rows);
  }

  /// Each calls the function of the same name of all partials of a walk, whose bytes for a row are
  /// contiguous.
  size_t wire_bytes(Walk walk, int64_t row) const;
  std::byte* put(Walk walk, int64_t row, int64_t place, const stats::Columns& columns, std::byte* to) const;
  std::byte* put_empty(Walk walk, int64_t row, std::byte* to) const;
  const std::byte* join(Walk walk, int64_t row, int64_t place, bool first, const std::byte* from,
                        stats::Columns& columns) const;

 private:
  ByWalk<Partials> by_walk_;
};

/// Computes the statistics of `rows`; row rows[i] has the place `place` + i in `partials`. visit(walk) must
/// visit all tiles of the rows and combine their partials.
template <class Visit>
void make_statistics(const CallPartials& partials, std::span<const int64_t> rows, int64_t place,
                     stats::Columns& columns, const Visit& visit) {
  if (rows.empty()) return;
  for (const Walk walk : {Walk::kFirst, Walk::kSecond}) {
    if (partials.of(walk).empty()) continue;
    visit(walk);
    for (const Partials* of_fold : partials.of(walk)) {
      for (size_t i = 0; i < rows.size(); ++i) of_fold->finish(rows[i], place + static_cast<int64_t>(i), columns);
    }
  }
}

}  // namespace logitless::fold
