// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Counts the allocations of this process, in every thread. It is linked into one test program, in which it
// replaces operator new and delete, and also malloc and its family except under the address sanitizer, which
// has its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitless::testing {

struct AllocationCount {
  int64_t live_bytes = 0;  ///< allocated and not freed
  int64_t live_blocks = 0;
  int64_t peak_bytes = 0;  ///< highest live_bytes since restart_peak()
  /// calls of operator new since the program began; none from C libraries or the OpenMP runtime
  int64_t news = 0;
};

AllocationCount allocation_count();
/// Restarts the peak at the current live bytes.
void restart_peak();

}  // namespace logitless::testing
