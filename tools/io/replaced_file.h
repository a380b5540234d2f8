// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace logitless::io {

/// A file that holds its old content until the new one is complete: that grows under another name beside it, so that a
/// full disk loses nothing. Links stay links, and the file keeps its permissions. A device, a pipe, and a file in a
/// folder that takes no other are written directly.
class ReplacedFile {
 public:
  /// Throws Error: "<path>: cannot be written: <reason>".
  explicit ReplacedFile(const std::string& path);
  /// Without commit() the file stays as it is.
  ~ReplacedFile();
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;

  std::ostream& out() { return out_; }
  /// Throws Error likewise, where anything could not be written.
  void commit();

 private:
  [[noreturn]] void fail();

  std::string path_;
  std::filesystem::path target_, written_;
  std::ofstream out_;
};

/// Where a path leads through links, also where nothing is there yet.
std::filesystem::path resolved(const std::filesystem::path& path);

}  // namespace logitless::io
