// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/arena.h"

#include <memory>
#include <stdexcept>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace logitless::core {
namespace {

// Requests huge pages for the part that holds whole ones: tiles are read by columns of cache lines, and
// stored logits are too large to map 4 KiB at a time. It does not matter if the system refuses.
void advise_huge_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  constexpr size_t kHugePage = size_t{2} << 20;
  void* begin = data;
  size_t size = bytes;
  if (!std::align(kHugePage, kHugePage, begin, size)) return;
  static_cast<void>(madvise(begin, size / kHugePage * kHugePage, MADV_HUGEPAGE));
#endif
}

}  // namespace

// Aligned by hand: glibc before 2.38 does not reuse freed blocks of its aligned allocation, so for a caller
// that allocates between two calls the heap would grow by one workspace per call.
Arena::Arena(size_t bytes) : allocation_(bytes), measuring_(false) {
  void* begin = allocation_.data();
  size_t size = bytes;
  data_ = static_cast<std::byte*>(std::align(kAlignment, 0, begin, size));
  if (data_) {
    size_ = size;
    advise_huge_pages(data_, size_);
  }
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
