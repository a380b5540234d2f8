// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Finds the rows whose gradients depend on one another, and cuts chunks that never separate them.
#pragma once

#include <cstdint>
#include <span>

#include "core/store.h"

namespace logitless::planning {

/// The groups of the active rows, in the order of their first rows.
struct RowGroups {
  core::Array<int64_t> rows;   // group by group, increasing inside each; empty if every row is its own group
  core::Array<int64_t> sizes;  // rows of each group
  int64_t largest = 1;

  bool coupled() const { return largest > 1; }
};

/// Groups `rows`, which are increasing. `ids` is TokenLoss::groups(), by row of hidden; empty: every row is
/// its own group.
RowGroups make_row_groups(std::span<const int64_t> rows, std::span<const int64_t> ids);

/// The rows, chunk by chunk.
struct RowChunks {
  core::Array<int64_t> order;   // increasing inside each chunk
  core::Array<int64_t> begins;  // [chunks + 1]: chunk c is order[begins[c] .. begins[c + 1])
  int64_t largest = 0;          // rows of the largest chunk

  int64_t count() const { return static_cast<int64_t>(begins.size()) - 1; }
  std::span<const int64_t> rows(int64_t chunk) const {
    const auto begin = static_cast<size_t>(begins[static_cast<size_t>(chunk)]);
    return std::span(order).subspan(begin, static_cast<size_t>(begins[static_cast<size_t>(chunk) + 1]) - begin);
  }
};

/// Fills chunks of at most `most_rows` (at least groups.largest) with whole groups, in group order. The
/// largest chunk never shrinks if `most_rows` grows: the first chunk that differs then has more rows than the
/// smaller `most_rows`.
RowChunks pack_groups(const RowGroups& groups, int64_t most_rows);

}  // namespace logitless::planning
