// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// One contender: a way to run the call of a config, and what its runs took.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common/task_call.h"
#include "cli/measure/one_call.h"
#include "cli/ranks/grid.h"

namespace logitless::cli {

/// One way to run the task that a config describes.
struct Contender {
  std::string name;
  std::vector<std::string> assignments = {};  ///< on top of the config's settings
  bool dense = false;  ///< what the library is compared with: at level fused dense/dense.h, else plan two_pass
  bool forward_only = false;
  std::string error = {};  ///< of an earlier process, which ended by it: this one is not run again
};

/// The config that it runs with. Throws io::Error.
io::Config contender_config(std::vector<std::string> settings, const Contender& contender);

/// The line of a contender that did not run.
Json failed_contender(const std::string& name, const std::string& message);

class Runner {
 public:
  /// The bytes of `job` must outlive it. With a grid that has ranks the call is theirs together, and `job` is
  /// this rank's part.
  Runner(const std::vector<std::string>& settings, const Contender& contender, const Job& job,
         RankGrid* grid = nullptr);

  const std::string& name() const { return contender_.name; }
  const Context& context() const { return context_; }
  const Job& job() const { return job_; }
  const TaskResult& result() const { return result_; }
  /// What ran: a plan of the library, or "dense".
  std::string plan_name() const;
  /// The same in one line.
  std::string plan_text() const;
  bool failed() const { return !contender_.error.empty(); }
  void fail(const std::string& message) { contender_.error = message.empty() ? "failed without a message" : message; }

  /// Brings up what every call needs once: the OpenMP team, the BLAS, the dispatch tables.
  void warm_up() const;
  void run(bool timed);

  const std::vector<double>& times_s() const { return times_s_; }
  const std::vector<double>& extra_peaks() const { return extra_peaks_; }
  PeakMethod peak_method() const { return peak_method_; }
  double median_s() const;
  int64_t extra_peak_bytes() const;  ///< the median
  /// What each run sent to other ranks.
  const std::vector<Exchanges>& exchanges() const { return exchanges_; }

  /// As a line of a benchmark's file holds it. `gemm_rate`: FLOP a second of one large product.
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
