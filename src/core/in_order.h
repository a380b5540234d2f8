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

/// Runs blocks of work whose middle parts must run in order, one at a time: for each block, begin(b) on any
/// thread of a team, then middle(b) in block order, then end(b) on the thread that ran begin(b), soon after,
/// while the block is still in its cache. OpenMP's `ordered` cannot do this: libgomp starts the next ordered
/// part only at the end of an iteration, so all ends would wait for each other.
class InOrder {
 public:
  explicit InOrder(int64_t blocks) : begun_(static_cast<size_t>(blocks)) {}

  /// Called once by every thread of the team; returns when this thread has no work left. Exceptions are
  /// stored in `error`, and the remaining work is skipped. Allocates nothing itself: if a thread left early,
  /// the others would wait for it forever.
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
  // A thread that would have to wait begins one more block instead, because another thread may be
  // descheduled.
  static constexpr int kAhead = 2;

  // The blocks that a thread has begun but not ended, in order.
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
