// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>

namespace logitless::cli {
namespace {

// The value of "<name>: 123 kB" in a file of such lines, in bytes; 0 where it is not there.
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

ResidentMemory resident_memory() {
  return {read_field("/proc/self/status", "VmRSS:"), read_field("/proc/self/status", "VmHWM:")};
}

bool reset_peak() { return write_control("/proc/self/clear_refs", "5"); }

void volunteer_when_memory_runs_out() { write_control("/proc/self/oom_score_adj", "500"); }

int64_t available_memory() { return read_field("/proc/meminfo", "MemAvailable:"); }

void touch_for_reading(const std::byte* data, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  volatile unsigned char sink = 0;
  for (size_t i = 0; i < bytes; i += page) sink = static_cast<unsigned char>(data[i]);
  if (bytes > 0) sink = static_cast<unsigned char>(data[bytes - 1]);  // An unaligned start can leave a last page over.
  (void)sink;
}

}  // namespace logitless::cli
