// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks meet here: before every exchange each rank says whether it goes on, and with a digest what it was
// given, so that a rank that fails, or that makes another call, ends the call on all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "core/store.h"
#include "logitless/ranks.h"
#include "ranks/statement.h"

namespace logitless::ranks {

/// One group of ranks, for one call. Without a communicator it is a group of one, for which
/// everything is a copy.
class Group {
 public:
  /// `name` is what messages call it. Ranks of a grid meet those of `before`, if that is not null, before
  /// they meet here: a group some of whose ranks have failed goes into no other exchange.
  Group(std::string_view name, Communicator* communicator, Group* before = nullptr);

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Tells whether there are ranks to meet.
  bool is_shared() const { return communicator_ != nullptr; }
  /// What this rank states, all others state too: the next exchange throws RankError where they do not, and
  /// names the first field that differs.
  Statement& statement() { return statement_; }

  /// All ranks get what each of them gives, [size * count], in their order. Throws RankError where one of
  /// them has failed, or gives another number of entries.
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
  /// Each rank gives an equal part of `mine` to each rank, in their order.
  template <class T>
  void all_to_all(std::span<const T> mine, std::span<T> theirs) {
    scatter(mine.data(), theirs.data(), mine.size_bytes() / static_cast<size_t>(size_));
  }
  /// Waits for all ranks. Throws RankError where one has failed.
  void agree();
  /// Returns the largest of what the ranks of `before` give; `mine` where there are none. A rank that has
  /// fewer exchanges here than they have with theirs sits these out: they meet before each.
  int64_t most_before(int64_t mine);
  void sit_out();
  /// Meets the others where they are next, and tells them that this rank has failed. Does nothing where they
  /// know of a failure.
  void leave(std::string_view message) noexcept;

 private:
  void gather(const void* mine, void* all, size_t bytes);
  void scatter(const void* mine, void* theirs, size_t bytes);
  // Says what this rank does next, hears what the others do, and throws where that is not the same.
  void say(int64_t step, size_t bytes);
  // Throws the same on all ranks: the first field of the statements that differs.
  [[noreturn]] void explain();
  // Calls a function of the communicator. Whoever throws in it has lost the others.
  template <class Function>
  void carry(const Function& function) {
    left_ = true;
    function(*communicator_);
    left_ = false;
  }

  std::string_view name_;
  Communicator* communicator_;
  Group* before_;
  int rank_ = 0;
  int size_ = 1;
  bool left_ = false;          // nobody is there to meet
  core::Array<int64_t> said_;  // by all ranks
  Statement statement_;
};

/// All that the ranks of one call say to each other.
class Meeting {
 public:
  explicit Meeting(const Ranks& ranks) : vocab("vocab", ranks.vocab), data("data", ranks.data, &vocab) {}
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  Group vocab, data;

  /// Calls visit(statement) for each group that has ranks to meet.
  template <class Visit>
  void state(const Visit& visit) {
    if (vocab.is_shared()) visit(vocab.statement());
    if (data.is_shared()) visit(data.statement());
  }
  /// Forgets what is stated while it lives.
  struct Scope {
    explicit Scope(Meeting& meeting) : vocab(meeting.vocab.statement()), data(meeting.data.statement()) {}
    Statement::Scope vocab, data;
  };

  /// Waits until all ranks are here. Throws RankError where one has failed.
  void agree() {
    vocab.agree();
    data.agree();
  }
  /// Tells the others that this rank has failed with `error`.
  void leave(const std::exception_ptr& error) noexcept;
};

/// Does the same for a call that has got no further than its ranks.
void leave(const Ranks& ranks, const std::exception_ptr& error) noexcept;

/// Runs a part of a call. What it throws is told to the other ranks, if there are any, and thrown here.
template <class Work>
auto together(Meeting* meeting, const Work& work) {
  try {
    return work();
  } catch (...) {
    if (meeting) meeting->leave(std::current_exception());
    throw;
  }
}

}  // namespace logitless::ranks
