// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/replaced_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/error.h"

namespace logitless::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as Linux follows

fs::path name_to_write(const fs::path& target) {
  std::error_code not_there;
  const fs::file_status status = fs::status(target, not_there);
  if (fs::exists(status) && !fs::is_regular_file(status)) return target;
  if (access(target.parent_path().c_str(), W_OK) != 0) return target;
  return target.string() + "." + std::to_string(getpid()) + ".tmp";
}

}  // namespace

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::absolute(path);
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    target = target.parent_path() / fs::read_symlink(target, error);
  }
  const fs::path canonical = fs::weakly_canonical(target, error);
  return error ? target : canonical;
}

ReplacedFile::ReplacedFile(const std::string& path)
    : path_(path),
      target_(resolved(path)),
      written_(name_to_write(target_)),
      out_(written_, std::ios::binary | std::ios::trunc) {
  if (!out_) fail();
  std::error_code none;
  const fs::file_status status = fs::status(target_, none);
  if (written_ != target_ && fs::exists(status)) fs::permissions(written_, status.permissions(), none);
}

ReplacedFile::~ReplacedFile() {
  std::error_code none;
  if (written_ != target_) fs::remove(written_, none);
}

void ReplacedFile::commit() {
  out_.close();
  if (!out_) fail();
  if (written_ == target_) return;
  if (std::rename(written_.c_str(), target_.c_str()) != 0) fail();
  written_ = target_;
}

void ReplacedFile::fail() { throw Error(path_ + ": cannot be written: " + std::strerror(errno)); }

}  // namespace logitless::io
