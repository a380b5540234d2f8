// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/row_groups.h"

#include <algorithm>
#include <utility>

namespace logitless::planning {

RowGroups make_row_groups(std::span<const int64_t> rows, std::span<const int64_t> ids) {
  RowGroups out;
  if (ids.empty()) return out;
  core::Array<std::pair<int64_t, int64_t>> sorted;  // a group and a row of it
  sorted.reserve(rows.size());
  for (const int64_t row : rows) sorted.emplace_back(ids[static_cast<size_t>(row)], row);
  std::sort(sorted.begin(), sorted.end());
  // Rename each group to its first row, so that the second sort puts groups in the order of their first rows.
  int64_t id = 0, first = -1;
  for (auto& [group, row] : sorted) {
    if (first < 0 || group != id) first = row;
    id = std::exchange(group, first);
  }
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [group, row] : sorted) {
    if (row == group) out.sizes.push_back(0);
    out.largest = std::max(out.largest, ++out.sizes.back());
    out.rows.push_back(row);
  }
  return out.coupled() ? out : RowGroups();
}

RowChunks pack_groups(const RowGroups& groups, int64_t most_rows) {
  RowChunks out;
  out.order = groups.rows;
  out.begins = {0};
  int64_t end = 0;
  for (const int64_t size : groups.sizes) {
    if (end > out.begins.back() && end + size - out.begins.back() > most_rows) out.begins.push_back(end);
    end += size;
    out.largest = std::max(out.largest, end - out.begins.back());
  }
  out.begins.push_back(end);
  for (size_t c = 0; c + 1 < out.begins.size(); ++c) {
    const auto begin = out.order.begin() + out.begins[c], next = out.order.begin() + out.begins[c + 1];
    if (!std::is_sorted(begin, next)) std::sort(begin, next);
  }
  return out;
}

}  // namespace logitless::planning
