// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The memory of one call. The same code first measures the memory and then takes it, so a plan's figure and
// its run always agree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/store.h"

namespace logitless::core {

/// Returns cache-line aligned parts of one allocation, like a stack. A measuring Arena returns null pointers
/// and only counts. Nothing is initialised, so untouched memory is never resident.
class Arena {
 public:
  /// A measuring Arena.
  Arena() = default;
  /// An Arena that owns `bytes` bytes. Throws std::bad_alloc.
  explicit Arena(size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns the next `count` elements. Taking more than was allocated throws std::logic_error: the plan was
  /// wrong.
  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(std::max<int64_t>(count, 0)) * sizeof(T)));
  }
  void* take_bytes(size_t bytes);

  bool measures() const { return measuring_; }

  /// Everything taken after mark() is free again after rewind(mark).
  size_t mark() const { return used_; }
  void rewind(size_t mark) { used_ = mark; }
  /// Returns the bytes to allocate for the largest use so far, including alignment.
  size_t peak() const { return peak_ + kAlignment; }

 private:
  // Uninitialised bytes.
  class Raw {
   public:
    explicit Raw(size_t bytes = 0) : bytes_(bytes), data_(bytes ? memory_.allocate(bytes) : nullptr) {}
    ~Raw() {
      if (data_) memory_.deallocate(data_, bytes_);
    }
    Raw(const Raw&) = delete;
    Raw& operator=(const Raw&) = delete;
    void* data() const { return data_; }

   private:
    Allocator<std::byte> memory_;
    size_t bytes_;
    std::byte* data_;
  };

  static constexpr size_t kAlignment = 64;  // a cache line, and the widest vector
  Raw allocation_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t used_ = 0;
  size_t peak_ = 0;
  bool measuring_ = true;
};

}  // namespace logitless::core
