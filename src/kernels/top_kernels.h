// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contracts of the kernels that keep the largest logits of a row. They are row kernels like those of
// row_kernels.h, with a table and a translation unit of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/row_kernels.h"

namespace logitless::kernels {

/// One of the largest logits of a row: a capped logit, and its token id.
struct TopEntry {
  double logit = -std::numeric_limits<double>::infinity();
  int64_t id = std::numeric_limits<int64_t>::max();  // as it is made: a place that no token has yet
};

inline bool is_taken(const TopEntry& entry) { return entry.id != std::numeric_limits<int64_t>::max(); }

/// Tells whether `a` comes before `b`: the larger logit, and of equal ones the lower id. This is a strict
/// total order, in which a place that no token has is the last, so which entries are the first k does not
/// depend on the order in which they come.
inline bool comes_before(const TopEntry& a, const TopEntry& b) {
  return (a.logit > b.logit) | ((a.logit == b.logit) & (a.id < b.id));
}

/// The same for algorithms, which then call no function.
inline constexpr auto kComesBefore = [](const TopEntry& a, const TopEntry& b) { return comes_before(a, b); };

/// A list gathers some entries more than the `k` that are wanted before it drops those that are not among the
/// first k: an entry then costs a comparison and a few moves, and the memory of a row is hardly looked at.
inline int64_t top_capacity(int64_t k) { return 2 * k + 16; }

/// What is known of a list.
struct TopState {
  TopEntry least;  // with k entries before it or at it: what comes behind it is not wanted
  int64_t count = 0;
};

/// The list of one row: entries [top_capacity(k)], of which [state->count] are taken. The first k of them are
/// the first k of all that were offered.
struct TopList {
  TopEntry* entries = nullptr;
  TopState* state = nullptr;
  int64_t k = 0;  // > 0

  void offer(const TopEntry& entry) const {
    if (!comes_before(entry, state->least)) return;
    entries[state->count++] = entry;
    if (state->count == top_capacity(k)) keep_first();
  }
  /// Drops what is not among the first k.
  void keep_first() const {
    if (state->count <= k) return;
    std::nth_element(entries, entries + k - 1, entries + state->count, kComesBefore);
    state->count = k;
    state->least = entries[k - 1];
  }
  /// Does the same, and puts the rest in order.
  void sort() const {
    keep_first();
    if (!std::is_sorted(entries, entries + state->count, kComesBefore)) {
      std::sort(entries, entries + state->count, kComesBefore);
    }
  }
};

/// Offers a row's columns to its list.
///   capped  [cols]; read only, nothing outside of it is read.
///   list    on entry that of all columns that came before these, in any order.
/// cols = 0 leaves the list untouched, and a NaN never gets in.
template <class T>
struct TopArgs {
  const T* capped = nullptr;
  int64_t cols = 0;
  int64_t first_column = 0;  // of these in the vocabulary, which ids mean
  TopList list;
};

template <class T>
struct TypedTopKernels {
  void (*top)(const TopArgs<T>&) = nullptr;
  /// Sets capped[0 .. shape.cols) to the capped logits of the row that begins at `logits`, with the bits that
  /// RowKernels::fold has for them. `capped` may be `logits`.
  void (*cap)(const TileShape<T>& shape, const T* logits, T* capped) = nullptr;
};

struct TopKernels {
  const char* name = "";
  TypedTopKernels<float> f32;
  TypedTopKernels<double> f64;

  template <class T>
  const TypedTopKernels<T>& typed() const {
    if constexpr (sizeof(T) == 4) {
      return f32;
    } else {
      return f64;
    }
  }
};

/// Returns the readable version.
const TopKernels& plain_top_kernels();

/// Returns those for the instruction set of RowKernels that have this name, or the plain ones.
const TopKernels& top_kernels_of(std::string_view name);

}  // namespace logitless::kernels
