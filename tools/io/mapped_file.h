// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Files whose tensors are read in place.
#pragma once

#include <cstddef>
#include <string>

namespace logitless::io {

/// A regular file, mapped read-only as long as the object lives. Where somebody cuts it short meanwhile, a
/// read beyond its new end raises SIGBUS.
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
  /// Throws Error where the file has been cut short since it was mapped: what was read of it is not to be
  /// trusted.
  void check_size() const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace logitless::io
