// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitless::cli {

/// Resident memory of this process, from /proc/self/status.
struct ResidentMemory {
  int64_t now_bytes = 0;   ///< VmRSS
  int64_t peak_bytes = 0;  ///< VmHWM
};

/// Zeros where /proc cannot be read.
ResidentMemory resident_memory();

/// Sets the peak back to what is resident now. False where the system does not permit it.
bool reset_peak();

/// Asks the system to end this process before others when memory runs out.
void volunteer_when_memory_runs_out();

/// What the system can still hand out without swapping (MemAvailable), or 0 where unknown.
int64_t available_memory();

/// Reads one byte of every page, so that all of them are mapped and resident.
void touch_for_reading(const std::byte* data, size_t bytes);

}  // namespace logitless::cli
