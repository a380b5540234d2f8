// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare`: dense and fused take turns on the same input.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/common/json.h"
#include "cli/measure/differences.h"
#include "io/config.h"
#include "io/tolerances.h"
#include "logitless/environment.h"

namespace logitless::cli {

/// What one contender did, over all its runs.
struct ContenderReport {
  double loss = 0;
  double time_s = 0;             ///< median
  int64_t extra_peak_bytes = 0;  ///< median
  int64_t workspace_bytes = 0;
  std::string plan, plan_text, peak_method;
  bool peak_unusual = false;                 ///< found in another way than on most machines
  Json metrics, times_s, extra_peaks_bytes;  ///< of an answer, as they are

  double metric(const std::string& name) const { return metrics.has(name) ? metrics[name].number() : Json().number(); }
};

struct ComparisonReport {
  io::Config config;
  Job job;  ///< shape and types
  bool has_bias = false;
  Environment environment;
  ContenderReport dense;
  ContenderReport fused;
  double loss_abs = 0;
  std::map<std::string, TensorDifference> differences;  ///< by "d_hidden" and so on, those that there are
  std::vector<io::Gate> gates;

  bool agrees() const;
  const TensorDifference* difference(const std::string& name) const;
};

/// For a terminal.
std::string table_of(const ComparisonReport& report);
Json json_of(const ComparisonReport& report);

}  // namespace logitless::cli
