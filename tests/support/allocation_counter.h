// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Counts what is allocated in this process, in every thread. Linked into one test program, it replaces
// operator new and delete there, and malloc and its family too but under the address sanitizer, which has its
// own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitless::testing {

struct AllocationCount {
  int64_t live_bytes = 0;  ///< allocated and not freed
  int64_t live_blocks = 0;
  int64_t peak_bytes = 0;  ///< highest live_bytes since restart_peak()
  /// Calls of operator new since the program began: no C library's, OpenMP's runtime's neither
  int64_t news = 0;
};

AllocationCount allocation_count();
/// Lets the peak begin anew at what is live now.
void restart_peak();

}  // namespace logitless::testing
