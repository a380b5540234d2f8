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
  Metrics metrics;                     ///< named as in the library's structs
  std::vector<double> per_token_loss;  ///< [N]; empty if the task has no such values
  /// [N], or one per set entry for task id_logps; empty if the task has no such values, as cross_entropy at
  /// level fused.
  std::vector<double> per_token_logps;
  std::vector<int64_t> top_ids;   ///< [N, top_k], for calls without gradients
  std::vector<double> top_logps;  ///< as top_ids
  Plan plan;                      ///< level fused

  /// Returns NaN if there is no such metric.
  double metric(std::string_view name) const;
};

/// Views of a job's tensors and the options of a config, for the calls of one task. Tensors that the task
/// does not use are empty. The config and the job's bytes must outlive it.
struct TaskRun {
  TaskRun(const io::Config& config, const Job& job);

  const io::Config& config;
  Logits source;    ///< hidden states and a head, or finished logits
  Targets targets;  ///< vocabulary ids, or ignore_index; policy_loss has a mask instead
  decltype(io::Config::tasks) tasks;
  std::span<const double> set_values;  ///< one per entry of the sets
  /// For runs in place at level logits, d_logits is the memory of the logits; reset() fills it.
  Gradients gradients;

  template <class T>
  const T& of() const {
    return std::get<T>(tasks);
  }
  /// The options of the task's log-probabilities.
  const TokenOptions& token_options() const { return of<CrossEntropy>().token; }
  /// Restores logits that a run in place has overwritten. Call it before every run.
  void reset() const;
  /// Throws InvalidInput. `forward_only` computes no gradients, and no loss if the config has a top_k. At
  /// level fused, `dense` holds all logits in memory (dense/dense.h).
  TaskResult run(const Context& context, bool forward_only = false, bool dense = false) const;
  /// Returns the log-probabilities of the targets, [N]; 0 for ignored tokens.
  std::vector<double> token_logps(const Context& context) const;

 private:
  TaskResult run_task(const Context& context, const auto& task, const Gradients& out, bool dense) const;
  TaskResult run_task(const Context& context, const IdLogps& task, const Gradients& out, bool dense) const;
  TaskResult statistics(const Context& context) const;
  void set_task(const Job& job, auto& task);
  void set_distributions(const Job& job);
  void set_outputs(const Job& job);

  std::span<const std::byte> kept_logits_;  // in place: the logits that reset() copies
};

/// Returns the context options of a config.
ContextOptions context_options_of(const io::Config& config);

/// Returns the input files of a command, for check_output_files(). Any of `configs` may be empty.
std::vector<InputFile> input_files(const TensorPaths& tensors, const std::vector<std::string>& configs);

}  // namespace logitless::cli
