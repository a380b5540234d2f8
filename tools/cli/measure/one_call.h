// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Time and memory of one call.
#pragma once

#include <cstdint>
#include <functional>

namespace logitless::cli {

/// How extra_peak_bytes was measured.
enum class PeakMethod {
  kReset,       ///< VmHWM, reset before the call, minus VmRSS then
  kUnreset,     ///< the reset was not permitted, but the call went above the earlier peak: exact as well
  kUpperBound,  ///< the reset was not permitted and the earlier peak was higher: the call stayed below this
};

/// Describes the method for a report.
const char* describe(PeakMethod method);

struct Measured {
  double time_s = 0;
  int64_t extra_peak_bytes = 0;  ///< above the resident memory before the call; 0 if /proc cannot be read
  PeakMethod peak_method = PeakMethod::kReset;
};

/// Runs and measures a call. First returns the allocator's free memory to the system: pages that are already
/// resident would not be counted when the call reuses them.
Measured measure(const std::function<void()>& call);

/// Returns the memory available without swapping (MemAvailable), or 0 if unknown.
int64_t available_memory();

/// Asks the system to end this process before others when memory runs out.
void raise_oom_score();

}  // namespace logitless::cli
