// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows that several ranks hold parts of are summed in one order, whatever carries them.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/integers.h"
#include "core/parallel.h"
#include "core/store.h"
#include "ranks/meeting.h"

namespace logitless::ranks {

/// The bytes of an element on its way: of a part, and of what all parts sum to.
struct SumWire {
  int64_t part = 0;
  int64_t total = 0;
};

/// Of each rank, for one part of each: so many rows of a message does a rank sum, which has about 8 MiB.
inline int64_t rows_of_message(int64_t ranks, int64_t most_parts, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kMessageBytes = 8 << 20;
  return std::clamp<int64_t>(kMessageBytes / (ranks * most_parts * row_bytes), 1,
                             std::max<int64_t>(1, core::div_up(rows, ranks)));
}

/// Sums `rows` rows of `cols` elements over all parts of all ranks, of which rank r has parts[r], in their
/// order. load(row, part, to) writes one of this rank's as it travels, add(from, to) adds one to sums, and
/// finish(sums, to) writes these as they travel to all ranks, where store(from, row) gets them. Each rank
/// sums an equal share of the rows of a message, which has about 8 MiB for all. Where every rank has one
/// part, parts and sums have one type, and the rows stand `in_place` one after the other as they travel,
/// messages come from there and go there.
template <class Sum, class Load, class Add, class Finish, class Store>
void sum_over_ranks(Group& group, std::span<const int64_t> parts, int64_t rows, int64_t cols, const SumWire& wire,
                    int threads, const Load& load, const Add& add, const Finish& finish, const Store& store,
                    std::byte* in_place = nullptr) {
  const int64_t size = group.size(), most = *std::max_element(parts.begin(), parts.end());
  const int64_t own = parts[static_cast<size_t>(group.rank())];
  const int64_t part_bytes = cols * wire.part, total_bytes = cols * wire.total;
  const int64_t share = rows_of_message(size, most, rows, part_bytes);
  core::Array<std::byte> mine(static_cast<size_t>(size * most * share * part_bytes)), theirs(mine.size());
  core::Array<Sum> sums(static_cast<size_t>(threads * cols));
  core::Array<std::byte> totals(static_cast<size_t>(share * total_bytes)),
      all(static_cast<size_t>(size * share * total_bytes));
  for (int64_t begin = 0; begin < rows; begin += size * share) {
    // This many rows of each rank are in this message.
    const int64_t count = std::min(share, core::div_up(rows - begin, size));
    const bool direct = in_place && begin + size * count <= rows;
    core::parallel_for(threads, direct ? 0 : size * count, [&](int64_t i) {
      if (begin + i >= rows) return;
      for (int64_t part = 0; part < own; ++part) {
        load(begin + i, part, mine.data() + ((i / count * most + part) * count + i % count) * part_bytes);
      }
    });
    const auto message = static_cast<size_t>(size * most * count * part_bytes);
    group.all_to_all(direct ? std::span<const std::byte>(in_place + begin * part_bytes, message)
                            : std::span<const std::byte>(mine).first(message),
                     std::span(theirs).first(message));
    core::parallel_for(threads, count, [&](int64_t i) {
      Sum* to = sums.data() + omp_get_thread_num() * cols;
      std::fill_n(to, cols, Sum{0});
      for (int64_t r = 0; r < size; ++r) {
        for (int64_t part = 0; part < parts[static_cast<size_t>(r)]; ++part) {
          add(theirs.data() + ((r * most + part) * count + i) * part_bytes, to);
        }
      }
      finish(to, totals.data() + i * total_bytes);
    });
    const auto whole = static_cast<size_t>(size * count * total_bytes);
    group.all_gather(std::span<const std::byte>(totals).first(static_cast<size_t>(count * total_bytes)),
                     direct ? std::span(in_place + begin * total_bytes, whole) : std::span(all).first(whole));
    core::parallel_for(threads, direct ? 0 : std::min(size * count, rows - begin),
                       [&](int64_t i) { store(all.data() + i * total_bytes, begin + i); });
  }
}

}  // namespace logitless::ranks
