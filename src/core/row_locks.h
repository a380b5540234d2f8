// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Locks of rows that several threads work on: those of different stretches of the vocabulary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace logitless::core {

/// Rows share a fixed number of locks: a thread that holds one must not take another.
class RowLocks {
 public:
  /// Holds the lock of a row until it goes out of scope.
  std::unique_lock<std::mutex> lock(int64_t row) {
    return std::unique_lock(locks_[static_cast<size_t>(row) % locks_.size()]);
  }

 private:
  std::array<std::mutex, 64> locks_;  // teams are smaller, and the rows of a block follow one another
};

}  // namespace logitless::core
