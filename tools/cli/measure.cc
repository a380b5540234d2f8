// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>

#include "cli/process_memory.h"

namespace logitless::cli {

Measured measure(const std::function<void()>& call) {
  malloc_trim(0);
  const bool was_reset = reset_peak();
  const ResidentMemory before = resident_memory();
  const auto start = std::chrono::steady_clock::now();
  call();
  Measured out;
  out.time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const ResidentMemory after = resident_memory();
  out.extra_peak_bytes = std::max<int64_t>(0, after.peak_bytes - before.now_bytes);
  out.peak_method = was_reset                              ? PeakMethod::kReset
                    : after.peak_bytes > before.peak_bytes ? PeakMethod::kUnreset
                                                           : PeakMethod::kUpperBound;
  return out;
}

const char* describe(PeakMethod method) {
  switch (method) {
    case PeakMethod::kReset:
      return "VmHWM after a reset, minus VmRSS before the call";
    case PeakMethod::kUnreset:
      return "VmHWM minus VmRSS before the call; the reset was not permitted and not needed";
    case PeakMethod::kUpperBound:
      return "upper bound: the reset of VmHWM was not permitted and an earlier peak was higher";
  }
  return "";
}

}  // namespace logitless::cli
