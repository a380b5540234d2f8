// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Memory that the command and its child processes share: anonymous files (memfd) that vanish with their last
// descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace logitless::cli {

/// Bytes of an open file. Plain data: it travels to a child inside a Job.
struct Region {
  int descriptor = -1;  ///< -1: this tensor does not exist
  uint64_t offset = 0;
  uint64_t bytes = 0;

  explicit operator bool() const { return descriptor >= 0; }
};

/// A Region mapped into this process as long as the object lives. An empty region has a valid address too: the library
/// tells an absent tensor from an empty one by its pointer.
class Mapping {
 public:
  enum class Access { kRead, kWrite };

  Mapping() = default;
  /// Throws std::system_error.
  Mapping(const Region& region, Access access);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  void* address_ = nullptr;  // What munmap wants: page-aligned.
  size_t mapped_bytes_ = 0;
};

/// An anonymous file of a fixed size, zero until it is written.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Throws std::system_error.
  SharedMemory(const std::string& name, size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  Region region() const { return {descriptor_, 0, bytes_}; }
  Mapping map_writable() const { return Mapping(region(), Mapping::Access::kWrite); }

 private:
  int descriptor_ = -1;
  size_t bytes_ = 0;
};

uint64_t total_bytes(const std::vector<SharedMemory>& memory);

}  // namespace logitless::cli
