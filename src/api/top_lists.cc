// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Functions of the lists of largest logits.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <unordered_set>

#include "core/checks.h"
#include "logitless/token_stats.h"

namespace logitless {
namespace {

// Returns the common length of `rows` lists.
size_t list_length(std::string_view name, size_t ids, int64_t rows) {
  if (rows == 0 ? ids == 0 : ids % static_cast<size_t>(rows) == 0) {
    return rows == 0 ? 0 : ids / static_cast<size_t>(rows);
  }
  core::fail(name, " has ", ids, " ids, which cannot be lists of equal length for ", rows, " rows");
}

}  // namespace

std::vector<double> top_masses(const TokenStats& stats) {
  const size_t rows = stats.lse.size(), ids = stats.top_ids.size();
  if (rows > 0 && ids == 0) core::fail("stats.top_ids is empty: request top_k above 0");
  if (stats.top_logps.size() != ids) {
    core::fail("stats.top_logps ", core::HasEntries(stats.top_logps.size()), " but stats.top_ids has ", ids);
  }
  const size_t k = list_length("stats.top_ids", ids, static_cast<int64_t>(rows));
  std::vector<double> masses(rows);
  for (size_t row = 0; row < rows; ++row) {
    // The smallest first, to keep precision.
    for (size_t at = (row + 1) * k; at-- > row * k;) {
      const double logp = stats.top_logps[at];
      if (stats.top_ids[at] >= 0 || std::isnan(logp)) masses[row] += std::exp(logp);
    }
  }
  return masses;
}

std::vector<int64_t> top_overlaps(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows) {
  if (rows < 0) core::fail("rows = ", rows, " must be at least 0");
  const size_t of_a = list_length("a", a.size(), rows), of_b = list_length("b", b.size(), rows);
  std::vector<int64_t> overlaps(static_cast<size_t>(rows));
  std::vector<int64_t> sorted(of_b);
  for (size_t row = 0; row < overlaps.size(); ++row) {
    const auto others = b.subspan(row * of_b, of_b);
    std::copy(others.begin(), others.end(), sorted.begin());
    std::sort(sorted.begin(), sorted.end());
    for (const int64_t id : a.subspan(row * of_a, of_a)) {
      overlaps[row] += id >= 0 && std::binary_search(sorted.begin(), sorted.end(), id);
    }
  }
  return overlaps;
}

TopUnions top_unions(std::span<const int64_t> a, std::span<const int64_t> b, int64_t rows) {
  if (rows < 0) core::fail("rows = ", rows, " must be at least 0");
  const size_t of_a = list_length("a", a.size(), rows), of_b = list_length("b", b.size(), rows);
  TopUnions out;
  out.ids.reserve(a.size() + b.size());
  out.offsets.reserve(static_cast<size_t>(rows) + 1);
  out.offsets.push_back(0);
  std::unordered_set<int64_t> seen;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    seen.clear();
    for (const std::span<const int64_t> list : {a.subspan(row * of_a, of_a), b.subspan(row * of_b, of_b)}) {
      std::copy_if(list.begin(), list.end(), std::back_inserter(out.ids),
                   [&](int64_t id) { return id >= 0 && seen.insert(id).second; });
    }
    out.offsets.push_back(static_cast<int64_t>(out.ids.size()));
  }
  return out;
}

}  // namespace logitless
