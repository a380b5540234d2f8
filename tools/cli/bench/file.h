// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The JSON Lines of a benchmark: a header, then one line per point. Each line is written whole and flushed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/common/output.h"
#include "io/bench_run.h"

namespace logitless::cli {

class BenchFile {
 public:
  /// Starts a file, or resumes one with the same header, cutting off a torn last line. An empty `path` keeps
  /// the run in memory only; "-" is standard output. Throws io::Error, with nothing written, if the file
  /// holds something else (unless `overwrite`), if another process writes it, or if it cannot be written.
  BenchFile(const std::string& path, const Json& header, bool overwrite);
  ~BenchFile();
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;

  const io::BenchRun& run() const { return run_; }
  /// Returns null if the point has not been measured yet.
  const io::Point* find(const io::Point& outline) const;
  /// Adds a point and returns it. Throws io::Error.
  const io::Point& append(const Json& point);

 private:
  void open_file(bool overwrite, const std::string& header);
  bool resume(const std::string& text);
  void write_line(const std::string& line);

  std::string path_;
  int descriptor_ = -1;  // -1: no file
  size_t bytes_ = 0;     // length of the whole lines, for a regular file
  bool regular_ = false;
  io::BenchRun run_;
};

}  // namespace logitless::cli
