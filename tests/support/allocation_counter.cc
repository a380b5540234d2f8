// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> live_blocks{0};
std::atomic<int64_t> peak_bytes{0};
std::atomic<int64_t> news{0};

void* count_allocated(void* memory) {
  if (!memory) return nullptr;
  live_blocks.fetch_add(1, std::memory_order_relaxed);
  const auto bytes = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void count_freed(void* memory) {
  if (!memory) return;
  live_blocks.fetch_sub(1, std::memory_order_relaxed);
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
}

}  // namespace

namespace logitless::testing {

AllocationCount allocation_count() { return {live_bytes.load(), live_blocks.load(), peak_bytes.load(), news.load()}; }

void restart_peak() { peak_bytes.store(live_bytes.load()); }

}  // namespace logitless::testing

#ifndef __SANITIZE_ADDRESS__

// glibc's own functions, which are replaced here by the same names. The C++ library's operator new calls
// malloc.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) { return count_allocated(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) { return count_allocated(__libc_calloc(count, bytes)); }
void* realloc(void* memory, size_t bytes) {
  count_freed(memory);
  void* moved = __libc_realloc(memory, bytes);
  if (!moved && memory && bytes > 0) count_allocated(memory);  // it failed: the old block is still live
  return count_allocated(moved);
}
void* memalign(size_t alignment, size_t bytes) { return count_allocated(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* memory = memalign(alignment, bytes);
  if (!memory) return ENOMEM;
  *out = memory;
  return 0;
}
void free(void* memory) {
  count_freed(memory);
  __libc_free(memory);
}
}

void* operator new(size_t bytes) {
  news.fetch_add(1, std::memory_order_relaxed);
  void* memory = malloc(bytes == 0 ? 1 : bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

#else

namespace {

void* try_allocate(size_t bytes) {
  news.fetch_add(1, std::memory_order_relaxed);
  return count_allocated(std::malloc(bytes == 0 ? 1 : bytes));
}
void* try_allocate(size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return count_allocated(std::aligned_alloc(align, (bytes + align - 1) / align * align));
}
void release(void* memory) {
  count_freed(memory);
  std::free(memory);
}

}  // namespace

#include "support/operators_new.h"

#endif
