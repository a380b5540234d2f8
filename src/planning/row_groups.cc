// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "planning/row_groups.h"
#include "core/store.h"

#include <algorithm>
#include <utility>

namespace logitless::planning {

RowGroups make_row_groups(std::span<const int64_t> rows, std::span<const int64_t> ids) {
  RowGroups out;
  if (ids.empty()) return out;
  const auto id = [&](int64_t k) { return ids[static_cast<size_t>(rows[static_cast<size_t>(k)])]; };
  // Sorts the rows by group, then by row, so the first row of each group defines the group's position.
  core::Array<int64_t> sorted(rows.size());
  for (size_t k = 0; k < sorted.size(); ++k) sorted[k] = static_cast<int64_t>(k);
  std::sort(sorted.begin(), sorted.end(),
            [&](int64_t a, int64_t b) { return std::pair(id(a), a) < std::pair(id(b), b); });
  core::Array<int64_t> first(rows.size());  // of each row's group
  for (size_t s = 0; s < sorted.size(); ++s) {
    const bool begins = s == 0 || id(sorted[s]) != id(sorted[s - 1]);
    first[static_cast<size_t>(sorted[s])] = begins ? sorted[s] : first[static_cast<size_t>(sorted[s - 1])];
  }
  core::Array<int64_t>& group_of = sorted;
  for (size_t k = 0; k < first.size(); ++k) {
    const auto begin = static_cast<size_t>(first[k]);
    if (begin == k) {
      group_of[k] = static_cast<int64_t>(out.sizes.size());
      out.sizes.push_back(0);
    } else {
      group_of[k] = group_of[begin];
    }
    out.largest = std::max(out.largest, ++out.sizes[static_cast<size_t>(group_of[k])]);
  }
  if (out.coupled()) {
    out.group_of = std::move(group_of);
  } else {
    out.sizes.clear();
  }
  return out;
}

RowChunks pack_groups(std::span<const int64_t> rows, const RowGroups& groups, int64_t most_rows) {
  RowChunks out;
  core::Array<int64_t> chunk_of(groups.sizes.size());
  out.begins = {0};
  int64_t used = 0;
  for (size_t g = 0; g < groups.sizes.size(); ++g) {
    if (used > 0 && used + groups.sizes[g] > most_rows) {
      out.begins.push_back(out.begins.back() + used);
      used = 0;
    }
    used += groups.sizes[g];
    out.largest = std::max(out.largest, used);
    chunk_of[g] = out.count();
  }
  out.begins.push_back(out.begins.back() + used);
  // A counting sort keeps the rows of a chunk increasing.
  core::Array<int64_t> next(out.begins.begin(), out.begins.end() - 1);
  out.order.resize(rows.size());
  for (size_t k = 0; k < rows.size(); ++k) {
    const auto chunk = static_cast<size_t>(chunk_of[static_cast<size_t>(groups.group_of[k])]);
    out.order[static_cast<size_t>(next[chunk]++)] = rows[k];
  }
  return out;
}

}  // namespace logitless::planning
