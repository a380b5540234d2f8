// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Mapped files, whose tensors are read in place.
#pragma once

#include <cstddef>
#include <string>

namespace logitless::io {

/// A regular file, mapped read-only as long as the object lives. If it is truncated meanwhile, a read beyond
/// its new end raises SIGBUS.
class MappedFile {
 public:
  /// Throws Error that names the path: absent, unreadable, a directory, or not mappable.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  /// Throws Error if the file has been truncated since it was mapped: what was read cannot be trusted.
  void check_size() const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace logitless::io
