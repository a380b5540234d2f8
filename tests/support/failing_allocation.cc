// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/failing_allocation.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

std::atomic<bool> watching{false};
std::atomic<int64_t> seen{0};
std::atomic<int64_t> failed{0};
std::atomic<int64_t> alive{0};
int64_t first_to_fail = std::numeric_limits<int64_t>::max();
int64_t last_to_fail = 0;

bool fails() {
  if (!watching.load()) return false;
  const int64_t index = seen.fetch_add(1);
  if (index < first_to_fail || index > last_to_fail) return false;
  failed.fetch_add(1);
  return true;
}

void* counted(void* memory) {
  if (memory) alive.fetch_add(1);
  return memory;
}
void* try_allocate(size_t bytes) { return fails() ? nullptr : counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* try_allocate(size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return fails() ? nullptr : counted(std::aligned_alloc(align, (bytes + align - 1) / align * align));
}
void release(void* memory) {
  if (memory) alive.fetch_sub(1);
  std::free(memory);
}

}  // namespace

namespace logitless::testing {

void fail_allocation(int64_t index, Failing failing) {
  first_to_fail = index;
  last_to_fail = failing == Failing::kOne ? index : std::numeric_limits<int64_t>::max();
  seen = failed = 0;
  watching = true;
}

AllocationsSeen stop_failing() {
  watching = false;
  return {seen.load(), failed.load()};
}

int64_t blocks_alive() { return alive.load(); }

}  // namespace logitless::testing

#include "support/operators_new.h"
