// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Makes operator new fail where a test says so, in every thread. Linked into one test program, it replaces
// operator new and delete there. What C code takes from malloc (OpenBLAS, the OpenMP runtime, thrown
// exceptions) does not fail.
#pragma once

#include <cstdint>

namespace logitless::testing {

enum class Failing {
  kOne,       ///< one allocation fails
  kAllAfter,  ///< that one and all that follow
};

/// From here on, allocation number `index` (from 0) fails.
void fail_allocation(int64_t index, Failing failing);

struct AllocationsSeen {
  int64_t allocations = 0;  ///< asked for since fail_allocation()
  int64_t failed = 0;       ///< of these
};
/// From here on, no allocation fails.
AllocationsSeen stop_failing();

/// Counts the blocks of operator new that are alive.
int64_t blocks_alive();

}  // namespace logitless::testing
