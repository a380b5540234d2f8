// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which drawings a run gets.
#pragma once

#include <string>
#include <vector>

#include "report/bench_run.h"
#include "report/panel.h"

namespace logitless::report {

struct Chapter {
  std::string heading;
  std::string caption;                   ///< what all its drawings share, and how to read them
  bool against_shape = false;            ///< lines against tokens, vocabulary or hidden size
  std::vector<std::vector<Panel>> rows;  ///< each begins with memory and time
};

/// Lines against every swept key that changes the shape; against any other key of numbers where it is the only one; a
/// heat map of the first two keys of numbers where there are more; bars where there is none. Keys of names, and further
/// keys of a heat map, get a drawing for each value. At least one chapter, each with at least one row.
std::vector<Chapter> chapters(const BenchRun& run);

}  // namespace logitless::report
