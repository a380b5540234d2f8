// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Checks sets of token ids and converts them to the picks of rows.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/checks.h"
#include "core/store.h"
#include "logitless/id_sets.h"
#include "problem/token_problem.h"

namespace logitless::problem {

/// The picks of sets, with increasing ids in each row. Pick k is entry entries[k] of the sets; picks of the
/// same id are in the order of the entries.
struct SetPicks {
  RowPicks picks;
  core::Array<int64_t> entries;
};

/// Returns the picks of rows of this shape. Rows whose mask is 0 are ignored and not read; without a
/// mask all rows are active. Throws InvalidInput for sets in the wrong form, and for the first id outside the
/// vocabulary, with its row and entry. Messages call the sets `name`.
SetPicks set_picks(const IdSets& sets, const Shape& shape, std::span<const uint8_t> mask = {},
                   std::string_view name = "sets");

/// Throws InvalidInput unless the mask is empty or has an entry of 0 or 1 for each of the rows.
void check_mask(std::span<const uint8_t> mask, int64_t rows, std::string_view rows_name);

/// Returns whether any part of the sets is given.
inline bool is_given(const IdSets& sets) { return sets.ids.given() || !sets.offsets.empty() || !sets.counts.empty(); }

/// Returns the memory of the sets.
core::Array<core::ByteRange> ranges_of(const IdSets& sets);

/// Calls visit(column, begin, end, id) for the distinct ids of a row, in increasing order: `column` counts
/// them, and picks [begin, end) have this id.
template <class Visit>
void for_each_distinct(const TokenProblem& problem, int64_t row, const Visit& visit) {
  const core::Array<int64_t>& ids = problem.picks.ids;
  const int64_t end = problem.pick_end(row);
  int64_t column = 0;
  for (int64_t pick = problem.pick_begin(row), next = pick; pick < end; pick = next, ++column) {
    const int64_t id = ids[static_cast<size_t>(pick)];
    while (next < end && ids[static_cast<size_t>(next)] == id) ++next;
    visit(column, pick, next, id);
  }
}

}  // namespace logitless::problem
