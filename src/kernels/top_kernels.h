// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contract of the row kernel that keeps the largest logits of a row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace logitless::kernels {

/// One of the largest logits of a row: a capped logit and its token id.
struct TopEntry {
  double logit = -std::numeric_limits<double>::infinity();
  int64_t id = std::numeric_limits<int64_t>::max();  // default: an empty entry
};

inline bool is_taken(const TopEntry& entry) { return entry.id != std::numeric_limits<int64_t>::max(); }

/// Returns whether `a` comes before `b`: larger logits come first; ties go to the lower id. This is a strict
/// total order in which empty entries come last, so the first k entries do not depend on the order in which
/// they are offered.
inline bool comes_before(const TopEntry& a, const TopEntry& b) {
  return (a.logit > b.logit) | ((a.logit == b.logit) & (a.id < b.id));
}

/// comes_before() as an object, which algorithms can inline.
inline constexpr auto kComesBefore = [](const TopEntry& a, const TopEntry& b) { return comes_before(a, b); };

/// The capacity of a list for the first `k` entries. The additional entries are dropped only when the list is
/// full, so that an offered entry costs a comparison and a few moves, and the row's memory is rarely
/// accessed.
inline int64_t top_capacity(int64_t k) { return 2 * k + 16; }

/// The state of a list.
struct TopState {
  TopEntry least;  // the k-th entry at the last keep_first(): entries after it are not among the first k
  int64_t count = 0;
};

/// The list of one row. The first state->count of entries [top_capacity(k)] are in use, and include the first
/// k of all entries that were offered.
struct TopList {
  TopEntry* entries = nullptr;
  TopState* state = nullptr;
  int64_t k = 0;  // > 0

  void offer(const TopEntry& entry) const {
    if (!comes_before(entry, state->least)) return;
    entries[state->count++] = entry;
    if (state->count == top_capacity(k)) keep_first();
  }
  /// Drops all entries that are not among the first k.
  void keep_first() const {
    if (state->count <= k) return;
    std::nth_element(entries, entries + k - 1, entries + state->count, kComesBefore);
    state->count = k;
    state->least = entries[k - 1];
  }
  /// Calls keep_first() and sorts the list.
  void sort() const {
    keep_first();
    if (!std::is_sorted(entries, entries + state->count, kComesBefore)) {
      std::sort(entries, entries + state->count, kComesBefore);
    }
  }
};

/// Offers a row's columns to its list.
///   capped  [cols]; read only, nothing outside it is read.
///   list    on entry the list of all columns offered before, in any order.
/// cols = 0 has no effect, and a NaN is never added.
template <class T>
struct TopArgs {
  const T* capped = nullptr;
  int64_t cols = 0;
  int64_t first_column = 0;  // vocabulary entry of column 0: ids are first_column + column
  TopList list;
};

}  // namespace logitless::kernels
