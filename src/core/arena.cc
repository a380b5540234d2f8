// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/arena.h"

#include <memory>
#include <stdexcept>

namespace logitless::core {

// The memory is aligned by hand: glibc before 2.38 does not reuse the blocks that its aligned allocation has
// freed, so that a caller who allocates between two calls would see the heap grow by a workspace a call.
Arena::Arena(size_t bytes) : allocation_(bytes), measuring_(false) {
  void* begin = allocation_.data();
  size_t size = bytes;
  data_ = static_cast<std::byte*>(std::align(kAlignment, 0, begin, size));
  if (data_) size_ = size;
}

void* Arena::take_bytes(size_t bytes) {
  const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::byte* out = measuring_ ? nullptr : data_ + used_;
  if (!measuring_ && padded > size_ - used_) {
    throw std::logic_error("logitless: a run takes more workspace than its plan measured");
  }
  used_ += padded;
  peak_ = std::max(peak_, used_);
  return out;
}

}  // namespace logitless::core
