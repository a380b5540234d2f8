// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace logitless::cli {

/// Figures for experiment trackers, one JSON object a line: {"step":3,"name":"dense.median_s","value":0.25}. Each line
/// is flushed whole, so that a tracker can follow a run.
class MetricsFile {
 public:
  /// What stood in the file is gone; "-": standard output. Throws io::Error where it cannot be written.
  explicit MetricsFile(const std::string& path);

  /// A value that is not finite becomes null. Throws io::Error.
  void write(int64_t step, const std::string& name, double value);

 private:
  void check() const;

  std::string path_;
  std::ofstream file_;
  std::ostream& out_;
};

}  // namespace logitless::cli
