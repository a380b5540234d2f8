// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The library's call that a config asks for, on the tensors of a job.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/common/inputs.h"
#include "io/config.h"
#include "logitless/run.h"
#include "oracle/views.h"

namespace logitless::cli {

using Metrics = std::vector<std::pair<std::string, double>>;

struct TaskResult {
  double loss = 0;
  Metrics metrics;                     ///< under the names of the library's structs
  std::vector<double> per_token_loss;  ///< [N]; empty where the task has none
  /// [N], or at task id_logps one an entry; empty where the task has none, as cross_entropy at level fused.
  std::vector<double> per_token_logps;
  std::vector<int64_t> top_ids;   ///< [N, top_k], of calls without gradients
  std::vector<double> top_logps;  ///< the same
  Plan plan;                      ///< level fused

  /// NaN where there is no such metric.
  double metric(std::string_view name) const;
};

/// Views of a job's tensors and the options of a config, for the calls of one task. What the task has no use
/// for is empty. The config and the job's bytes must outlive it.
struct TaskRun {
  TaskRun(const io::Config& config, const Job& job);

  const io::Config& config;
  Logits source;    ///< what the task is of
  Targets targets;  ///< ids of the vocabulary entries, with ignore_index but for grpo
  decltype(io::Config::tasks) tasks;
  std::span<const double> set_values;  ///< of the entries of sets
  /// At level logits, in place, d_logits is the logits' own memory, filled by reset().
  Gradients gradients;

  template <class T>
  const T& of() const {
    return std::get<T>(tasks);
  }
  /// How the task takes log-probabilities.
  const TokenOptions& token_options() const { return of<CrossEntropy>().token; }
  /// Puts the logits back that a run in place has overwritten. Call it before every run.
  void reset() const;
  /// Throws InvalidInput. Without gradients when `forward_only`; without a loss if the config has a top_k.
  /// Level fused may be `dense`, with all logits in memory (dense/dense.h).
  TaskResult run(const Context& context, bool forward_only = false, bool dense = false) const;
  /// The log-probabilities of the targets, [N]; 0 where a token takes no part.
  std::vector<double> token_logps(const Context& context) const;

 private:
  TaskResult run_task(const Context& context, const auto& task, const Gradients& out, bool dense) const;
  TaskResult run_task(const Context& context, const IdLogps& task, const Gradients& out, bool dense) const;
  TaskResult statistics(const Context& context) const;
  void set_task(const Job& job, auto& task);
  void set_distributions(const Job& job);
  void set_outputs(const Job& job);

  std::span<const std::byte> kept_logits_;  // in place: what reset() copies
};

/// The context that a config describes.
ContextOptions context_options_of(const io::Config& config);

/// What a command reads, for check_output_files(). Of `configs` any may be empty.
std::vector<InputFile> input_files(const TensorPaths& tensors, const std::vector<std::string>& configs);

}  // namespace logitless::cli
