// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <mutex>

namespace logitless::core {

/// Exceptions must not leave an OpenMP region: the first one waits until the region has ended, and what comes after it
/// has nothing to do.
class FirstError {
 public:
  /// Runs `work`, unless other work has thrown.
  template <class Work>
  void guard(const Work& work) noexcept {
    if (failed_.load(std::memory_order_acquire)) return;
    try {
      work();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
  }
  /// After the region.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace logitless::core
