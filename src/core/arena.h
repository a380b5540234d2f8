// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// An Arena is the memory of one call. The same code first measures what it will take and then takes it, so
// that a plan's figure and its run cannot disagree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/store.h"

namespace logitless::core {

/// Hands out cache-line aligned parts of one allocation, like a stack. A measuring Arena hands out null
/// pointers and only counts. Nothing is initialised, so memory that is never touched is never resident.
class Arena {
 public:
  /// Makes an Arena that measures.
  Arena() = default;
  /// Makes an Arena that owns `bytes`. Throws std::bad_alloc.
  explicit Arena(size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns the next `count` elements. Taking more than was allocated is a std::logic_error: a plan was
  /// wrong.
  template <class T>
  T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(std::max<int64_t>(count, 0)) * sizeof(T)));
  }
  void* take_bytes(size_t bytes);

  /// Everything taken after mark() is free again after rewind(mark).
  size_t mark() const { return used_; }
  void rewind(size_t mark) { used_ = mark; }
  /// Returns the bytes to allocate for what was in use at most, with what aligning them may take.
  size_t peak() const { return peak_ + kAlignment; }

 private:
  // Holds bytes that nothing has written.
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
