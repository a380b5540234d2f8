// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One run of `logitless bench`: the parts of its JSON Lines file that `bench` itself reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace logitless::io {

inline constexpr const char* kDense = "dense";  ///< the contender that is the baseline

/// The figures of a contender at one point. If it failed, `error` says why and the figures are meaningless.
struct Measurement {
  std::string contender;
  std::string error;  ///< empty: it ran
  double first_s = 0;
  double median_s = 0;
  double spread_s = 0;  ///< half the distance between the quartiles
  std::optional<double> gemm_efficiency;
  int64_t extra_peak_bytes = 0;
  int64_t extra_peak_spread_bytes = 0;  ///< as spread_s
  int64_t workspace_bytes = 0;
  std::string plan;  ///< empty: another program's contender, which reports no plan and no workspace

  bool ok() const { return error.empty(); }
};

struct Point {
  std::vector<std::string> at;  ///< one value per key of BenchRun::sweep, in its order
  std::string task;
  std::string level;
  std::string layout;  ///< of the head
  std::optional<double> gemm_rate_flops;
  std::vector<Measurement> measurements;

  /// Returns null if the contender was not measured.
  const Measurement* find(const std::string& contender) const {
    const auto it = std::ranges::find(measurements, contender, &Measurement::contender);
    return it == measurements.end() ? nullptr : &*it;
  }
  /// Returns null if the contender was not measured or failed.
  const Measurement* find_ok(const std::string& contender) const {
    const Measurement* measurement = find(contender);
    return measurement && measurement->ok() ? measurement : nullptr;
  }
};

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

struct BenchRun {
  std::string name;  ///< the file's name without its folder
  std::vector<std::string> settings;
  std::vector<SweptKey> sweep;
  int64_t iters = 0;
  int64_t warmup = 0;
  std::string inputs;
  std::vector<std::string> contenders;
  std::vector<std::pair<std::string, std::string>> environment;  ///< without its warnings
  std::vector<Point> points;
};

/// Reads the JSON Lines of `logitless bench` (schema 1), which must have at least one point. A last line
/// without its newline was torn by an interruption and is skipped. Throws Error, one line that names file and
/// line, if a figure is missing or not a number.
BenchRun read_run(const std::string& path);

/// Reads a run from a text, which may have a header alone. `path` names the run, also in messages.
BenchRun parse_run(const std::string& path, std::string_view text);

/// Adds one line, given without its newline, to `run`. Number 1 is the header.
void parse_line(const std::string& path, int64_t number, std::string_view line, BenchRun& run);

}  // namespace logitless::io
