// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contract of a fuzz target: any bytes are either read, or refused with an io::Error of one line.
// Anything else, such as another exception, a sanitizer report or a timeout, is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "io/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace logitless::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Ends the process with a message, which the fuzzer records.
inline void require(bool holds, const std::string& promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

// Returns whether `read` accepted the bytes.
template <class Read>
bool reads(const Read& read) {
  try {
    read();
    return true;
  } catch (const io::Error& e) {
    const std::string_view message = e.what();
    require(!message.empty() && message.size() < 5000,
            "an error is a line of readable length: " + std::string(message));
    for (const unsigned char c : message)
      require(c >= 0x20 && c != 0x7f, "an error is one line without control characters");
    return false;
  }
}

// A file in memory, rewritten for each input.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) { require(descriptor_ >= 0, "memory files exist"); }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes) const {
    const bool written = ftruncate(descriptor_, 0) == 0 &&
                         pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    require(written, "a memory file can be written");
  }

 private:
  int descriptor_;
  std::string path_ = "/proc/self/fd/" + std::to_string(descriptor_);
};

}  // namespace logitless::fuzz
