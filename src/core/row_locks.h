// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Locks for rows that several threads work on, each for its own range of the vocabulary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace logitless::core {

/// Rows share a fixed number of locks, so a thread that holds one must not take another.
class RowLocks {
 public:
  /// Locks a row for the lifetime of the result.
  std::unique_lock<std::mutex> lock(int64_t row) {
    return std::unique_lock(locks_[static_cast<size_t>(row) % locks_.size()]);
  }

 private:
  std::array<std::mutex, 64> locks_;  // teams are smaller, and the rows of a block are consecutive
};

}  // namespace logitless::core
