// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Writes training metrics as JSON Lines: {"step":1,"name":"loss","value":9.03}. examples/README.md passes
// them to experiment trackers.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "train.h"

class MetricsFile {
 public:
  /// Empties the file. Throws std::runtime_error if it cannot be written.
  explicit MetricsFile(const std::string& path);

  /// Writes one line, which is in the file when the call returns. JSON has no NaN or infinity, so these are
  /// written as null. Throws std::runtime_error.
  void write(int64_t step, const std::string& name, double value);

 private:
  std::string path_;
  std::ofstream file_;
};

/// `prefix` distinguishes runs in one file: "" or "fused/".
void write_step(MetricsFile& file, const std::string& prefix, const StepReport& report, const TrainOptions& options);

/// Writes the figures of a whole run, at its last step.
void write_summary(MetricsFile& file, const std::string& prefix, const TrainSummary& summary,
                   const TrainOptions& options);
