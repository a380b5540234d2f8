// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The library's call that a config asks for, on the tensors of a job: the one place that knows every task.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/common/inputs.h"
#include "io/config.h"
#include "io/profile_file.h"
#include "logitless/cross_entropy.h"
#include "logitless/distillation.h"
#include "logitless/id_sets.h"
#include "logitless/logits.h"
#include "logitless/policy.h"
#include "logitless/preference.h"
#include "logitless/run.h"
#include "logitless/set_distillation.h"
#include "logitless/soft_targets.h"
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
  HiddenStates hidden;
  HeadMatrices head;
  FinishedLogits logits;    ///< level logits
  TeacherMatrices teacher;  ///< of a distillation
  Targets targets;          ///< ids of the vocabulary entries, with ignore_index but for grpo
  CrossEntropy cross_entropy;
  PolicyLoss policy;
  PreferenceLoss preference;
  KtoLoss kto;
  Distillation distillation;
  SetDistillation set_distillation;
  SoftCrossEntropy soft_cross_entropy;
  IdLogps id_logps;
  std::span<const double> set_values;  ///< of the entries of sets
  /// Level logits: in place d_logits is the logits' own memory, filled by reset().
  GradientMatrices gradients;

  /// What the task is of.
  Logits source() const { return config.level == io::Level::kLogits ? Logits::given(logits) : logits_of(hidden, head); }

  /// How the task takes log-probabilities.
  const TokenOptions& token_options() const { return cross_entropy.token; }
  /// Puts the logits back that a run in place has overwritten. Call it before every run.
  void reset() const;
  /// Throws InvalidInput. Without gradients when `forward_only`; without a loss if the config has a top_k.
  /// Level fused may be `dense`, with all logits in memory (dense/dense.h).
  TaskResult run(const Context& context, bool forward_only = false, bool dense = false) const;
  /// The log-probabilities of the targets, [N]; 0 where a token takes no part.
  std::vector<double> token_logps(const Context& context) const;

 private:
  TaskResult run_id_logps(const Context& context, const Gradients& out, bool dense) const;
  TaskResult statistics(const Context& context) const;
  void set_options(const Job& job);
  void set_batches(const Job& job);
  void set_distributions(const Job& job);
  void set_outputs(const Job& job);

  const std::byte* source_logits_ = nullptr;  // in place: what reset() copies
  size_t logits_bytes_ = 0;
};

/// The context that a config describes.
ContextOptions context_options_of(const io::Config& config);

/// The profile that a command uses: the file of --profile, or else of the environment variable
/// LOGITLESS_PROFILE.
class Profile {
 public:
  /// `path` as --profile gives it, or empty. Throws io::Error where the file is no profile.
  explicit Profile(const std::string& path);

  /// Empty where none is asked for.
  const std::string& path() const { return path_; }

  /// Sets kernel.plan, kernel.row_tile and kernel.vocab_tile as the entry of this shape says, where
  /// `config` leaves them to the library. Returns what came of it, for the user; empty where no profile is
  /// asked for.
  std::string apply(const Job& shape, io::Config& config) const;

 private:
  std::string path_;
  std::vector<io::ProfileEntry> entries_;
};

/// What a profile looks up.
ProfileShape profile_shape(const io::Config& config, const Job& job);

/// What a command reads, for check_output_files(). Of `configs` any may be empty.
std::vector<InputFile> input_files(const TensorPaths& tensors, const Profile& profile,
                                   const std::vector<std::string>& configs);

}  // namespace logitless::cli
