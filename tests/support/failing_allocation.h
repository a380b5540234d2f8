// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Makes chosen calls of operator new fail, in every thread. It is linked into one test program, in which it
// replaces operator new and delete. Allocations by malloc in C code (OpenBLAS, the OpenMP runtime, thrown
// exceptions) do not fail.
#pragma once

#include <cstdint>

namespace logitless::testing {

enum class Failing {
  kOne,       ///< one allocation fails
  kAllAfter,  ///< this allocation and all following ones
};

/// Makes allocation number `index` fail, counted from 0 from now on.
void fail_allocation(int64_t index, Failing failing);

struct AllocationsSeen {
  int64_t allocations = 0;  ///< requested since fail_allocation()
  int64_t failed = 0;       ///< of these
};
/// Stops all failures.
AllocationsSeen stop_failing();

/// Returns the number of live blocks of operator new.
int64_t blocks_alive();

}  // namespace logitless::testing
