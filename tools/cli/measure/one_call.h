// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Time and memory of one call.
#pragma once

#include <cstdint>
#include <functional>

namespace logitless::cli {

/// How extra_peak_bytes was found.
enum class PeakMethod {
  kReset,       ///< VmHWM, reset before the call, minus VmRSS then
  kUnreset,     ///< the reset was not permitted, but the call went above the earlier peak: exact as well
  kUpperBound,  ///< the reset was not permitted and the earlier peak was higher: the call stayed below this
};

/// The same for a report.
const char* describe(PeakMethod method);

struct Measured {
  double time_s = 0;
  int64_t extra_peak_bytes = 0;  ///< above what was resident before the call; 0 where /proc cannot be read
  PeakMethod peak_method = PeakMethod::kReset;
};

/// What the allocator holds goes back to the system first, or the call would reuse resident pages that nobody
/// counted.
Measured measure(const std::function<void()>& call);

/// What the system can still hand out without swapping (MemAvailable), or 0 where unknown.
int64_t available_memory();

/// Asks the system to end this process before others when memory runs out.
void volunteer_when_memory_runs_out();

}  // namespace logitless::cli
