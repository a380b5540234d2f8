// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Replaces operator new and delete by try_allocate() and release() of the source that includes this last.
// std::stable_sort allocates its buffer with the nothrow forms, which must match the delete below.
#pragma once

#include <new>

namespace {
void* or_throw(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(size_t bytes) { return or_throw(try_allocate(bytes)); }
void* operator new[](size_t bytes) { return or_throw(try_allocate(bytes)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return or_throw(try_allocate(bytes, alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return or_throw(try_allocate(bytes, alignment)); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }
