// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Sums rows that several ranks hold parts of, in an order that does not depend on the communicator.
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

/// The bytes per element as sent: of a part, and of a total.
struct SumWire {
  int64_t part = 0;
  int64_t total = 0;
};

/// Returns how many rows of one message each rank sums. A rank sends about 1 MiB per rank, at least 2 MiB and
/// at most 8 MiB in total, so that with few ranks on one machine received data is still in the cache
/// when it is read.
inline int64_t rows_of_message(int64_t ranks, int64_t most_parts, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  const int64_t bytes = std::clamp<int64_t>(ranks, 2, 8) * kMiB;
  return std::clamp<int64_t>(bytes / (ranks * most_parts * row_bytes), 1,
                             std::max<int64_t>(1, core::div_up(rows, ranks)));
}

/// Sums `rows` rows of `cols` elements over all parts of all ranks, in order; rank r has parts[r] parts. It
/// works message by message, so that a message can be sent as soon as its rows are final.
class RowSums {
 public:
  /// Sums have elements of `sum_bytes` bytes and are computed by at most `threads` threads.
  RowSums(Group& group, std::span<const int64_t> parts, int64_t rows, int64_t cols, const SumWire& wire,
          size_t sum_bytes, int threads)
      : group_(group),
        parts_(parts.begin(), parts.end()),
        most_parts_(*std::max_element(parts.begin(), parts.end())),
        rows_(rows),
        cols_(cols),
        part_bytes_(cols * wire.part),
        total_bytes_(cols * wire.total),
        share_(rows_of_message(group.size(), most_parts_, rows, part_bytes_)),
        send_buffer_(static_cast<size_t>(group.size() * most_parts_ * share_ * part_bytes_)),
        receive_buffer_(send_buffer_.size()),
        sums_(static_cast<size_t>(threads * cols) * sum_bytes),
        totals_(static_cast<size_t>(share_ * total_bytes_)),
        all_(static_cast<size_t>(group.size() * share_ * total_bytes_)) {}

  bool done() const { return begin_ >= rows_; }
  /// Returns the row at which the next `messages` messages end.
  int64_t end_of(int64_t messages) const { return std::min(rows_, begin_ + messages * group_.size() * share_); }

  /// Sums the rows of the next message with at most `threads` threads. Each rank sums an equal share of the
  /// rows:
  ///   load(row, part, to)  writes one of this rank's parts of a row in the format in which it is sent
  ///   add(from, to)        adds a received part to the sums
  ///   finish(sums, to)     writes the sums in the format in which they are sent to all ranks
  ///   store(from, row)     stores a row of received totals
  /// `in_place`, if not null, is the first of all rows, contiguous and in the format in which they are sent;
  /// then every rank has one part, and parts and totals have one format. Whole messages are then sent from
  /// there and received there.
  template <class Sum, class Load, class Add, class Finish, class Store>
  void next(int threads, const Load& load, const Add& add, const Finish& finish, const Store& store,
            std::byte* in_place = nullptr) {
    const int64_t size = group_.size(), own = parts_[static_cast<size_t>(group_.rank())];
    // number of rows per rank in this message
    const int64_t count = std::min(share_, core::div_up(rows_ - begin_, size));
    const bool direct = in_place && begin_ + size * count <= rows_;
    core::parallel_for(threads, direct ? 0 : size * count, [&](int64_t i) {
      if (begin_ + i >= rows_) return;
      for (int64_t part = 0; part < own; ++part) {
        load(begin_ + i, part,
             send_buffer_.data() + ((i / count * most_parts_ + part) * count + i % count) * part_bytes_);
      }
    });
    const auto message = static_cast<size_t>(size * most_parts_ * count * part_bytes_);
    group_.all_to_all(direct ? std::span<const std::byte>(in_place + begin_ * part_bytes_, message)
                             : std::span<const std::byte>(send_buffer_).first(message),
                      std::span(receive_buffer_).first(message));
    core::parallel_for(threads, count, [&](int64_t i) {
      Sum* to = reinterpret_cast<Sum*>(sums_.data()) + omp_get_thread_num() * cols_;
      std::fill_n(to, cols_, Sum{0});
      for (int64_t r = 0; r < size; ++r) {
        for (int64_t part = 0; part < parts_[static_cast<size_t>(r)]; ++part) {
          add(receive_buffer_.data() + ((r * most_parts_ + part) * count + i) * part_bytes_, to);
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
  const int64_t most_parts_;  // most parts of a rank
  const int64_t rows_, cols_;
  const int64_t part_bytes_, total_bytes_;  // per row
  const int64_t share_;                     // most rows per message that one rank sums
  int64_t begin_ = 0;                       // first row of the next message
  core::Array<std::byte> send_buffer_, receive_buffer_;
  core::Array<std::byte> sums_;  // [threads, cols] of Sum
  core::Array<std::byte> totals_, all_;
};

}  // namespace logitless::ranks
