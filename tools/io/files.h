// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// How files are read and written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace logitless::io {

/// The whole text of a file or a pipe (`<(command)`, /dev/stdin). It waits for a pipe as long as somebody has
/// it open for writing; a named pipe that nobody opens within two seconds is an error, as are a folder, a
/// device and a text of more than `most_bytes`. Throws Error that names the path.
std::string read_text_file(const std::string& path, size_t most_bytes);

/// No file that this project reads nests deeper than four levels. A JSON value is copied, printed and freed
/// by recursion, so what a stranger's file nests a hundred thousand levels deep would overflow the stack.
inline constexpr size_t kMostJsonDepth = 32;

/// How deep brackets and braces nest outside of strings. Of a text that is not JSON it says nothing.
size_t json_depth(std::string_view text);

/// A file that holds its old content until the new one is complete: that grows under another name beside it,
/// so that a full disk loses nothing. Links stay links, and the file keeps its permissions. A device, a pipe,
/// and a file in a folder that takes no other are written directly.
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
