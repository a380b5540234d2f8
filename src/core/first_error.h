// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>

namespace logitless::core {

/// Stores the first exception in an OpenMP region until the region has ended, because exceptions must not
/// escape from it. Work that starts later is skipped.
class FirstError {
 public:
  /// Runs `work`, unless other work has thrown. Allocates nothing, because the stored exception may be a
  /// std::bad_alloc.
  template <class Work>
  void guard(const Work& work) noexcept {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
    }
  }
  /// Throws the stored exception, if any. Call it after the region, whose end orders this read after the one
  /// write.
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

}  // namespace logitless::core
