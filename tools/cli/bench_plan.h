// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a benchmark is going to measure. Every mistake in its options is found here, before anything runs.
#pragma once

#include <string>
#include <vector>

#include "cli/bench.h"
#include "cli/bench_point.h"
#include "cli/profile_flag.h"
#include "cli/sweep.h"
#include "io/config.h"

namespace logitless::cli {

struct PlannedPoint {
  std::vector<std::string> at;  ///< the value of each swept key
  io::Config config;
  std::vector<BenchContender> contenders;

  /// "seq_len=256 model.dtype=float32"; "the config's point" where nothing is swept.
  std::string name;
  /// What came of the profile; empty without one.
  std::string profile;
  /// How long it should take, in any unit: multiply-adds of all turns.
  double work = 0;
};

struct BenchPlan {
  std::vector<SweptKey> sweep;
  std::vector<PlannedPoint> points;     ///< at least one
  std::vector<std::string> contenders;  ///< of all points

  /// "key=value": what all points share.
  std::vector<std::string> shared_settings() const;
  /// What came of the profile for each point; empty without one.
  std::vector<std::string> profiles() const;
};

/// Throws io::Error or InvalidInput.
BenchPlan plan_bench(const BenchOptions& options, const Profile& profile);

}  // namespace logitless::cli
