// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/error.h"

namespace logitless::io {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // opening a pipe would block
  if (descriptor_ < 0) throw Error(path_ + ": cannot be opened: " + std::strerror(errno));
  const auto fail = [&](const std::string& reason) {
    close(descriptor_);
    throw Error(path_ + ": " + reason);
  };
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail(std::string("cannot be examined: ") + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) fail("is a directory, not a file");
  if (!S_ISREG(status.st_mode))
    fail("is not a regular file: tensors are read in place, so a pipe or a device will not do");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (address == MAP_FAILED) fail(std::string("cannot be mapped: ") + std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<std::byte*>(data_), size_);
  if (descriptor_ >= 0) close(descriptor_);
}

void MappedFile::check_size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) == 0 && static_cast<size_t>(status.st_size) >= size_) return;
  throw Error(path_ + ": was cut short while it was read");
}

}  // namespace logitless::io
