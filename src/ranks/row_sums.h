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

/// So many rows does each rank sum of one message, which has about 1 MiB a rank, but 2 MiB at least and 8 MiB
/// at most: few ranks on one machine then find in their caches what they have just received.
inline int64_t rows_of_message(int64_t ranks, int64_t most_parts, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t bytes = std::clamp<int64_t>(ranks, 2, 8) * kMiB;
  return std::clamp<int64_t>(bytes / (ranks * most_parts * row_bytes), 1,
                             std::max<int64_t>(1, core::div_up(rows, ranks)));
}

/// Sums `rows` rows of `cols` elements over all parts of all ranks, of which rank r has parts[r], in their
/// order: message after message, each whenever its rows are ready.
class RowSums {
 public:
  /// Sums have elements of `sum_bytes`, and a team of at most `threads` makes them.
  RowSums(Group& group, std::span<const int64_t> parts, int64_t rows, int64_t cols, const SumWire& wire,
          size_t sum_bytes, int threads)
      : group_(group),
        parts_(parts.begin(), parts.end()),
        most_(*std::max_element(parts.begin(), parts.end())),
        rows_(rows),
        cols_(cols),
        part_bytes_(cols * wire.part),
        total_bytes_(cols * wire.total),
        share_(rows_of_message(group.size(), most_, rows, part_bytes_)),
        mine_(static_cast<size_t>(group.size() * most_ * share_ * part_bytes_)),
        theirs_(mine_.size()),
        sums_(static_cast<size_t>(threads * cols) * sum_bytes),
        totals_(static_cast<size_t>(share_ * total_bytes_)),
        all_(static_cast<size_t>(group.size() * share_ * total_bytes_)) {}

  bool done() const { return begin_ >= rows_; }
  /// Returns where the rows of the next `messages` end.
  int64_t end_of(int64_t messages) const { return std::min(rows_, begin_ + messages * group_.size() * share_); }

  /// Sums the rows of the next message on a team of at most `threads`. load(row, part, to) writes one of this
  /// rank's as it travels, add(from, to) adds one to sums, and finish(sums, to) writes these as they go to
  /// all ranks, where store(from, row) gets them. Each rank sums an equal share of the rows. Where every rank
  /// has one part, parts and sums have one type, and the rows stand `in_place` one after the other as they
  /// travel, messages come from there and go there.
  template <class Sum, class Load, class Add, class Finish, class Store>
  void next(int threads, const Load& load, const Add& add, const Finish& finish, const Store& store,
            std::byte* in_place = nullptr) {
    const int64_t size = group_.size(), own = parts_[static_cast<size_t>(group_.rank())];
    // This many rows of each rank are in this message.
    const int64_t count = std::min(share_, core::div_up(rows_ - begin_, size));
    const bool direct = in_place && begin_ + size * count <= rows_;
    core::parallel_for(threads, direct ? 0 : size * count, [&](int64_t i) {
      if (begin_ + i >= rows_) return;
      for (int64_t part = 0; part < own; ++part) {
        load(begin_ + i, part, mine_.data() + ((i / count * most_ + part) * count + i % count) * part_bytes_);
      }
    });
    const auto message = static_cast<size_t>(size * most_ * count * part_bytes_);
    group_.all_to_all(direct ? std::span<const std::byte>(in_place + begin_ * part_bytes_, message)
                             : std::span<const std::byte>(mine_).first(message),
                      std::span(theirs_).first(message));
    core::parallel_for(threads, count, [&](int64_t i) {
      Sum* to = reinterpret_cast<Sum*>(sums_.data()) + omp_get_thread_num() * cols_;
      std::fill_n(to, cols_, Sum{0});
      for (int64_t r = 0; r < size; ++r) {
        for (int64_t part = 0; part < parts_[static_cast<size_t>(r)]; ++part) {
          add(theirs_.data() + ((r * most_ + part) * count + i) * part_bytes_, to);
        }
      }
      finish(to, totals_.data() + i * total_bytes_);
    });
    const auto whole = static_cast<size_t>(size * count * total_bytes_);
    group_.all_gather(std::span<const std::byte>(totals_).first(static_cast<size_t>(count * total_bytes_)),
                      direct ? std::span(in_place + begin_ * total_bytes_, whole) : std::span(all_).first(whole));
    core::parallel_for(threads, direct ? 0 : std::min(size * count, rows_ - begin_),
                       [&](int64_t i) { store(all_.data() + i * total_bytes_, begin_ + i); });
    begin_ += size * count;
  }

 private:
  Group& group_;
  const core::Array<int64_t> parts_;
  const int64_t most_;  // parts of a rank
  const int64_t rows_, cols_;
  const int64_t part_bytes_, total_bytes_;  // of a row
  const int64_t share_;                     // most rows of a message that a rank sums
  int64_t begin_ = 0;                       // the first row of the next message
  core::Array<std::byte> mine_, theirs_;
  core::Array<std::byte> sums_;  // [threads, cols] of the type of sums
  core::Array<std::byte> totals_, all_;
};

}  // namespace logitless::ranks
