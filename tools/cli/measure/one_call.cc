// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/measure/one_call.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>

namespace logitless::cli {
namespace {

constexpr const char* kStatus = "/proc/self/status";

// Returns the value of "<name>: 123 kB" in a file of such lines, in bytes, or 0 if there is none.
int64_t read_field(const char* path, const std::string& name) {
  std::ifstream in(path);
  std::string word;
  while (in >> word) {
    if (word == name) {
      int64_t kibibytes = 0;
      in >> kibibytes;
      return in ? kibibytes * 1024 : 0;
    }
    in.ignore(1 << 16, '\n');
  }
  return 0;
}

bool write_control(const char* path, std::string_view text) {
  const int descriptor = open(path, O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool written = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(descriptor);
  return written;
}

}  // namespace

Measured measure(const std::function<void()>& call) {
  malloc_trim(0);
  const bool was_reset = write_control("/proc/self/clear_refs", "5");
  const int64_t before = read_field(kStatus, "VmRSS:"), peak_before = read_field(kStatus, "VmHWM:");
  const auto start = std::chrono::steady_clock::now();
  call();
  Measured out;
  out.time_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int64_t peak_after = read_field(kStatus, "VmHWM:");
  out.extra_peak_bytes = std::max<int64_t>(0, peak_after - before);
  out.peak_method = was_reset                  ? PeakMethod::kReset
                    : peak_after > peak_before ? PeakMethod::kUnreset
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

int64_t available_memory() { return read_field("/proc/meminfo", "MemAvailable:"); }

void raise_oom_score() { write_control("/proc/self/oom_score_adj", "500"); }

}  // namespace logitless::cli
