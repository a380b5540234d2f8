// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "core/first_error.h"
#include "core/store.h"

namespace logitless::core {

/// This runs blocks of work whose middle parts must run in order, one at a time. For every block it calls
/// begin(b) on any thread of a team, then middle(b) in block order, then end(b) on the thread that began it,
/// soon after, while what it has begun is in its cache. OpenMP's `ordered` cannot do this: libgomp passes the
/// turn on at the end of an iteration, not at the end of its ordered part, so that all ends would wait for
/// each other.
class InOrder {
 public:
  explicit InOrder(int64_t blocks) : begun_(static_cast<size_t>(blocks)) {}

  /// It is called once by every thread of the team, and returns when this thread has nothing left to do. What
  /// throws is left in `error`; the remaining work is skipped then. Outside of that it allocates nothing: a
  /// thread that left this early would leave the others waiting for its turn.
  template <class Begin, class Middle, class End>
  void run(FirstError& error, const Begin& begin, const Middle& middle, const End& end) noexcept {
    Begun mine;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      if (!mine.empty() && mine.front() < ready_) {
        const int64_t block = mine.front();
        mine.pop();
        lock.unlock();
        error.guard([&] { end(block); });
        lock.lock();
      } else if (!mine.full() && next_ < blocks()) {
        const int64_t block = next_++;
        mine.push(block);
        lock.unlock();
        error.guard([&] { begin(block); });
        lock.lock();
        begun_[static_cast<size_t>(block)] = true;
        pass_on(error, middle);
      } else if (mine.empty()) {
        return;
      } else {
        changed_.wait(lock);
      }
    }
  }

 private:
  // A thread whose block's turn has not come begins one more instead of waiting: another thread may be
  // descheduled.
  static constexpr int kAhead = 2;

  // The blocks that a thread has begun and not ended, in order.
  class Begun {
   public:
    bool empty() const { return count_ == 0; }
    bool full() const { return count_ == kAhead; }
    int64_t front() const { return blocks_[0]; }
    void push(int64_t block) { blocks_[static_cast<size_t>(count_++)] = block; }
    void pop() { std::shift_left(blocks_.begin(), blocks_.begin() + count_--, 1); }

   private:
    std::array<int64_t, kAhead> blocks_ = {};
    int count_ = 0;
  };

  int64_t blocks() const { return static_cast<int64_t>(begun_.size()); }

  template <class Middle>
  void pass_on(FirstError& error, const Middle& middle) {
    const int64_t before = ready_;
    while (ready_ < blocks() && begun_[static_cast<size_t>(ready_)]) {
      error.guard([&] { middle(ready_); });
      ++ready_;
    }
    if (ready_ > before) changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Array<bool> begun_;
  int64_t next_ = 0;   // first block that no thread has begun
  int64_t ready_ = 0;  // first block whose middle has not run
};

}  // namespace logitless::core
