// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Memory of this process, from Linux's /proc. On other systems every figure is 0.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#if defined(__GLIBC__)  // defined only after a standard header
#include <malloc.h>
#endif

/// A figure of /proc/self/status in bytes: "VmRSS" (resident now) or "VmHWM" (the peak so far).
inline int64_t memory_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

/// Touches every page, because zeroed memory need not have pages yet, and the first write would be charged
/// for them. Volatile, because a compiler may turn malloc and a fill with zeros into calloc, which touches
/// nothing.
inline void make_resident(std::span<float> values) {
  constexpr size_t kPage = 4096 / sizeof(float);
  for (size_t i = 0; i < values.size(); i += kPage) {
    volatile float& value = values[i];
    value = value;
  }
}

/// Measures how far the resident set rises above its level at construction. The constructor resets VmHWM, so
/// that earlier peaks do not count. If the system forbids the reset they count, and `reset` is false.
class PeakMeter {
 public:
  PeakMeter() {
#if defined(__GLIBC__)
    malloc_trim(0);  // otherwise freed memory that is still resident would hide the first megabytes
#endif
    peak_before_ = memory_bytes("VmHWM");
    std::ofstream clear("/proc/self/clear_refs");
    clear << "5" << std::flush;
    reset_ = clear.good();
    level_ = memory_bytes("VmRSS");
  }

  int64_t extra_peak() const { return memory_bytes("VmHWM") - level_; }
  int64_t peak_before() const { return peak_before_; }
  bool reset() const { return reset_; }

 private:
  int64_t peak_before_ = 0;
  int64_t level_ = 0;
  bool reset_ = false;
};
