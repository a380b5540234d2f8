// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows that several ranks hold parts of are summed in one order, whatever carries them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/integers.h"
#include "core/parallel.h"
#include "core/store.h"
#include "ranks/meeting.h"

namespace logitless::stream {

/// Sums `rows` rows of `cols` elements over all parts of all ranks, of which rank r has parts[r], in their
/// order. load(row, part, to) writes one of this rank's, and add(from, count, to) adds; store(sums, row) gets
/// what all ranks get. Each rank sums an equal share of the rows of a message, which has about 8 MiB for all.
template <class Sum, class Add, class Load, class Store>
void sum_over_ranks(ranks::Group& group, std::span<const int64_t> parts, int64_t rows, int64_t cols, int threads,
                    const Add& add, const Load& load, const Store& store) {
  constexpr int64_t kMessageBytes = 8 << 20;
  const int64_t size = group.size(), most = *std::max_element(parts.begin(), parts.end());
  const int64_t own = parts[static_cast<size_t>(group.rank())];
  const int64_t share = std::clamp<int64_t>(kMessageBytes / (size * most * cols * static_cast<int64_t>(sizeof(Sum))), 1,
                                            std::max<int64_t>(1, core::div_up(rows, size)));
  core::Array<Sum> mine(static_cast<size_t>(size * most * share * cols)), theirs(mine.size());
  core::Array<Sum> sums(static_cast<size_t>(share * cols)), all(static_cast<size_t>(size * share * cols));
  for (int64_t begin = 0; begin < rows; begin += size * share) {
    // This many rows of each rank are in this message.
    const int64_t count = std::min(share, core::div_up(rows - begin, size));
    core::parallel_for(threads, size * count, [&](int64_t i) {
      if (begin + i >= rows) return;
      for (int64_t part = 0; part < own; ++part) {
        load(begin + i, part, mine.data() + ((i / count * most + part) * count + i % count) * cols);
      }
    });
    const auto message = static_cast<size_t>(size * most * count * cols);
    group.all_to_all(std::span<const Sum>(mine).first(message), std::span(theirs).first(message));
    core::parallel_for(threads, count, [&](int64_t i) {
      Sum* to = sums.data() + i * cols;
      std::fill_n(to, cols, Sum{0});
      for (int64_t r = 0; r < size; ++r) {
        for (int64_t part = 0; part < parts[static_cast<size_t>(r)]; ++part) {
          add(theirs.data() + ((r * most + part) * count + i) * cols, cols, to);
        }
      }
    });
    group.all_gather(std::span<const Sum>(sums).first(static_cast<size_t>(count * cols)),
                     std::span(all).first(static_cast<size_t>(size * count * cols)));
    core::parallel_for(threads, std::min(size * count, rows - begin),
                       [&](int64_t i) { store(all.data() + i * cols, begin + i); });
  }
}

}  // namespace logitless::stream
