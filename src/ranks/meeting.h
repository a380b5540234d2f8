// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The exchanges between ranks. Before every exchange each rank sends whether it continues, and a digest of
// its inputs. So a rank that fails or makes a different call ends the call on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "core/store.h"
#include "logitless/ranks.h"
#include "ranks/digests.h"

namespace logitless::ranks {

/// One group of ranks, for one call. Without a communicator it is a group of one rank, and every exchange is
/// a copy.
class Group {
 public:
  /// `name` is the group's name in error messages. In a grid of ranks, each exchange here first synchronises
  /// the ranks of `before` (if not null), so that a group in which a rank has failed starts no other
  /// exchange.
  Group(std::string_view name, Communicator* communicator, Group* before = nullptr);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns whether there is a communicator.
  bool is_shared() const { return communicator_ != nullptr; }
  /// The inputs that all ranks must share. If they differ, the next exchange throws RankError with the name
  /// of the first field that differs.
  Digests& digests() { return digests_; }

  /// Gathers `mine` of all ranks, in rank order, into `all` [size * count]. Throws RankError if a rank has
  /// failed or passes a different count.
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    gather(mine.data(), all.data(), mine.size_bytes());
  }
  template <class T>
  core::Array<T> all_gather(const T& mine) {
    core::Array<T> all(static_cast<size_t>(size_));
    all_gather(std::span(&mine, 1), std::span(all));
    return all;
  }
  /// Sends an equal part of `mine` to each rank, in rank order, and receives one part from each rank into
  /// `theirs`.
  template <class T>
  void all_to_all(std::span<const T> mine, std::span<T> theirs) {
    scatter(mine.data(), theirs.data(), mine.size_bytes() / static_cast<size_t>(size_));
  }
  /// Waits for all ranks. Throws RankError if one has failed.
  void barrier();
  /// Returns the maximum of `mine` over the ranks of `before`, or `mine` if `before` is null. Every exchange
  /// here synchronises the ranks of `before`, so a rank with fewer exchanges than this maximum must call
  /// skip_exchange() for each missing one.
  int64_t most_before(int64_t mine);
  void skip_exchange();
  /// Joins the other ranks in their next exchange and reports that this rank has failed. Has no effect if
  /// they can no longer be reached or already know of a failure.
  void report_failure(std::string_view message) noexcept;

 private:
  void gather(const void* mine, void* all, size_t bytes);
  void scatter(const void* mine, void* theirs, size_t bytes);
  // Exchanges the next step with all ranks, and throws if the ranks differ.
  void exchange_headers(int64_t step, size_t bytes);
  // Throws on all ranks, with the same first field that differs.
  [[noreturn]] void throw_difference();
  // Calls a function of the communicator. If it throws, this rank can no longer reach the others.
  template <class Function>
  void call_communicator(const Function& function) {
    unreachable_ = true;
    function(*communicator_);
    unreachable_ = false;
  }

  std::string_view name_;
  Communicator* communicator_;
  Group* before_;
  int rank_ = 0;
  int size_ = 1;
  bool unreachable_ = false;      // the other ranks can no longer be reached
  core::Array<int64_t> headers_;  // [size, 3]: the headers of all ranks
  Digests digests_;
};

/// The groups of ranks of one call.
class Meeting {
 public:
  explicit Meeting(const Ranks& ranks) : vocab("vocab", ranks.vocab), data("data", ranks.data, &vocab) {}
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Group vocab, data;

  /// Calls visit(digests) for each group that has a communicator.
  template <class Visit>
  void digest(const Visit& visit) {
    if (vocab.is_shared()) visit(vocab.digests());
    if (data.is_shared()) visit(data.digests());
  }
  /// Its destructor removes the digests that were added since its construction.
  struct Scope {
    explicit Scope(Meeting& meeting) : vocab(meeting.vocab.digests()), data(meeting.data.digests()) {}
    Digests::Scope vocab, data;
  };

  /// Waits for all ranks of both groups. Throws RankError if one has failed.
  void barrier() {
    vocab.barrier();
    data.barrier();
  }
  /// Reports to the other ranks that this rank has failed with `error`.
  void report_failure(const std::exception_ptr& error) noexcept;
};

/// Reports the failure of a call that has not constructed its Meeting.
void report_failure(const Ranks& ranks, const std::exception_ptr& error) noexcept;

/// Returns work(). If it throws, reports the exception to the other ranks (if `meeting` is not null) and
/// rethrows it.
template <class Work>
auto together(Meeting* meeting, const Work& work) {
  try {
    return work();
  } catch (...) {
    if (meeting) meeting->report_failure(std::current_exception());
    throw;
  }
}

}  // namespace logitless::ranks
