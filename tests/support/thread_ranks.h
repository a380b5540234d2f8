// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of this process.
#pragma once

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "logitless/ranks.h"

namespace logitless::testing {

/// Shared by the ranks of one group.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : given_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Rank>(*this, rank));
  }

  Communicator& of(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  /// From now on every exchange throws, as if another rank had died.
  void break_down() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }
  /// Called before every exchange, with the rank and the number of its exchange.
  std::function<void(int rank, int exchange)> before_exchange;

  /// Returns the bytes that all ranks have sent to others.
  size_t sent_bytes() const { return sent_; }

 private:
  class Rank final : public Communicator {
   public:
    Rank(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.given_.size()); }
    void all_gather(const void* mine, void* all, size_t bytes) override {
      exchange(mine, [&](size_t r, const std::byte* given) {
        if (bytes > 0) std::memcpy(static_cast<std::byte*>(all) + r * bytes, given, bytes);
      });
      count(bytes);
    }
    void all_to_all(const void* mine, void* theirs, size_t bytes) override {
      exchange(mine, [&](size_t r, const std::byte* given) {
        if (bytes == 0) return;
        std::memcpy(static_cast<std::byte*>(theirs) + r * bytes, given + static_cast<size_t>(rank_) * bytes, bytes);
      });
      count(bytes);
    }

   private:
    template <class Take>
    void exchange(const void* mine, const Take& take) {
      if (group_.before_exchange) group_.before_exchange(rank_, exchanges_++);
      group_.given_[static_cast<size_t>(rank_)] = static_cast<const std::byte*>(mine);
      group_.wait();
      for (size_t r = 0; r < group_.given_.size(); ++r) take(r, group_.given_[r]);
      group_.wait();
    }
    void count(size_t bytes) {
      const std::lock_guard lock(group_.mutex_);
      group_.sent_ += bytes * (group_.given_.size() - 1);
    }

    ThreadGroup& group_;
    int rank_;
    int exchanges_ = 0;
  };

  void wait() {
    std::unique_lock lock(mutex_);
    const int turn = turn_;
    if (++arrived_ == static_cast<int>(given_.size())) {
      arrived_ = 0;
      ++turn_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return broken_ || turn_ != turn; });
    if (turn_ == turn) throw std::runtime_error("the group has broken down");
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const std::byte*> given_;
  size_t sent_ = 0;
  int arrived_ = 0;
  int turn_ = 0;
  bool broken_ = false;
};

/// Threads that live as long as the process, because LLVM 14's OpenMP fails on the memory of ended threads.
class RankThreads {
 public:
  /// Returns the only instance, which is never destroyed.
  static RankThreads& instance() {
    static auto* threads = new RankThreads;
    return *threads;
  }

  /// Calls work(0) ... work(count - 1), each on its own thread, and waits for all of them.
  void run(int count, const std::function<void(int)>& work) {
    std::unique_lock lock(mutex_);
    while (threads_ < count) std::thread([this, id = threads_++] { serve(id); }).detach();
    work_ = &work;
    count_ = running_ = count;
    ++turn_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void serve(int id) {
    int seen = 0;
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return turn_ != seen; });
      seen = turn_;
      if (id >= count_) continue;
      lock.unlock();
      (*work_)(id);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(int)>* work_ = nullptr;
  int threads_ = 0, count_ = 0, running_ = 0, turn_ = 0;
};

/// Runs work(rank) on one thread per rank. Returns the exception of each rank, or null.
inline std::vector<std::exception_ptr> run_ranks(int size, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  RankThreads::instance().run(size, [&](int rank) {
    try {
      work(rank);
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
    }
  });
  return errors;
}

/// Returns the message of an exception, or an empty string for null.
inline std::string message_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

}  // namespace logitless::testing
