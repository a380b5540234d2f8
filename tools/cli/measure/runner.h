// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One contender: a way to run a config's call, and the results of its runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common/task_call.h"
#include "cli/measure/one_call.h"
#include "cli/ranks/grid.h"

namespace logitless::cli {

struct Contender {
  std::string name;
  std::vector<std::string> assignments = {};  ///< on top of the config's settings
  bool dense = false;                         ///< the baseline: dense/dense.h at level fused, else plan two_pass
  bool forward_only = false;
  std::string error = {};  ///< why it failed in an earlier process; it is not run again
};

/// Returns the config that the contender runs with. Throws io::Error.
io::Config contender_config(std::vector<std::string> settings, const Contender& contender);

/// Returns the report of a contender that did not run.
Json failed_contender(const std::string& name, const std::string& message);

class Runner {
 public:
  /// The bytes of `job` must outlive it. If `grid` has several ranks they run the call together, and `job` is
  /// this rank's part.
  Runner(const std::vector<std::string>& settings, const Contender& contender, const Job& job,
         RankGrid* grid = nullptr);

  const std::string& name() const { return contender_.name; }
  const Context& context() const { return context_; }
  const Job& job() const { return job_; }
  const TaskResult& result() const { return result_; }
  /// The plan that ran, or "dense".
  std::string plan_name() const;
  /// Describes the plan in one line.
  std::string plan_text() const;
  bool failed() const { return !contender_.error.empty(); }
  void fail(const std::string& message) { contender_.error = message.empty() ? "failed without a message" : message; }

  /// Initialises what later calls reuse: the OpenMP team, the BLAS, the dispatch tables.
  void warm_up() const;
  void run(bool timed);

  const std::vector<double>& times_s() const { return times_s_; }
  const std::vector<double>& extra_peaks() const { return extra_peaks_; }
  PeakMethod peak_method() const { return peak_method_; }
  double median_s() const;
  int64_t extra_peak_bytes() const;  ///< the median
  /// The traffic of each timed run with other ranks.
  const std::vector<Exchanges>& exchanges() const { return exchanges_; }

  /// Returns the contender's entry in a benchmark's line. `gemm_rate`: FLOP per second of one large product.
  Json json(const std::optional<double>& gemm_rate) const;

 private:
  bool is_dense() const { return contender_.dense && config_.level == io::Level::kFused; }

  Contender contender_;
  Job job_;  // TaskRun refers to it
  io::Config config_;
  RankGrid* grid_;
  Context context_;
  TaskRun call_;
  TaskResult result_;
  std::optional<double> first_s_;
  std::vector<double> times_s_, extra_peaks_;
  std::vector<Exchanges> exchanges_;
  PeakMethod peak_method_ = PeakMethod::kReset;
};

/// As Runner::warm_up(), for calls in `dtype`.
void warm_up(const Context& context, DType dtype, bool dense = false);

}  // namespace logitless::cli
