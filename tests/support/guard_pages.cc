// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "support/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace logitless::testing {

std::shared_ptr<void> guarded_memory(size_t bytes, Flush flush) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t inner = (bytes + page - 1) / page * page;
  const size_t total = inner + 2 * page;
  void* base = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  char* first = static_cast<char*>(base) + page;
  if (inner > 0 && mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
  char* data = flush == Flush::kEnd ? first + inner - bytes : first;
  return {data, [base, total](void*) { munmap(base, total); }};
}

}  // namespace logitless::testing
