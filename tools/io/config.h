// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The keys of a config file or of `--set key=value`. Every command reads the same schema; configs/tiny.yaml
// shows all of it. A key that cannot have an effect is an error, never silently ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/matrices.h"
#include "io/error.h"
#include "io/tolerances.h"
#include "logitless/context.h"
#include "logitless/dtype.h"
#include "logitless/gradients.h"
#include "logitless/packed.h"
#include "logitless/run.h"

namespace logitless::io {

/// Declares a tuple with one of each task.
template <class... T>
std::tuple<T...> one_of_each(TypeList<T...>);

/// Calls use.operator()<T>() for each task that a config can have: all except those whose results are
/// statistics.
template <class Use>
void for_each_task(const Use& use) {
  AllTasks::each([&]<class T> {
    if constexpr (!requires(typename T::Result result) { result.stats; }) use.template operator()<T>();
  });
}

/// True if every token has a set of ids, with a number for each id.
template <class T>
inline constexpr bool kHasSets = requires(T task) {
  task.sets;
}
|| requires(T task) { task.targets.sets; }
|| requires(T task) { task.teacher.sets; };

/// True if the task takes a weight per token.
template <class T>
inline constexpr bool kHasTokenWeights = requires(T task) {
  task.token_weights;
};

/// The inputs of a task: hidden states and a head, or finished logits.
enum class Level { kFused, kLogits };
const char* name_of(Level level);
using logitless::name_of;

/// The LoRA of the seeded head.
struct LoraConfig {
  int64_t rank = 0;            ///< r; 0: none
  double scale = 1;            ///< often alpha / r
  std::optional<DType> dtype;  ///< of a and b; empty: the model's type
};

struct ModelConfig {
  std::string name;
  int64_t hidden_size = 0;  ///< H; 0: not given
  int64_t vocab_size = 0;   ///< V; 0: not given
  HeadLayout layout = HeadLayout::kVocabHidden;
  DType dtype = DType::kFloat32;
  double softcap = 0;  ///< 0: none
  bool bias = false;
  std::optional<Packing> packing;  ///< of the seeded head; empty: a matrix of dtype
  std::vector<int64_t> vocab_ids;  ///< entries of the head, and of a teacher's head, to compute over; empty: all
  LoraConfig lora;
};

struct GradientConfig {
  bool d_hidden = true;
  bool d_weight = true;
  bool d_bias = true;    ///< has an effect only if the model has a bias
  bool d_lora_a = true;  ///< has an effect only if the model has a LoRA, as d_lora_b
  bool d_lora_b = true;
  bool float32 = false;  ///< dtype: float32 instead of the inputs' type
};

/// The temperature of each token: one value for all, or drawn uniformly from [low, high) by the seed.
struct TemperatureConfig {
  double low = 1.0;
  double high = 1.0;
  bool per_token() const { return low != high; }
};

/// The seeded batch of task policy_loss.
struct PolicyConfig {
  bool advantage_per_token = false;   ///< else one per sequence
  bool on_policy = false;             ///< without old_logps
  double log_ratio_deviation = 0.25;  ///< standard deviation of the seeded old_logps around the policy's own
};

/// The seeded batch of task kto_loss.
struct KtoConfig {
  bool kl_baseline = true;  ///< with kl_logps
};

/// The second head of task distillation_loss.
struct TeacherConfig {
  int64_t hidden_size = 0;     ///< H of the teacher; 0: the model's
  std::optional<DType> dtype;  ///< empty: the model's type
  double softcap = 0;          ///< 0: none
  bool bias = false;
};

/// The seeded sets of ids.
struct SetsConfig {
  int64_t ids = 64;    ///< K, per token
  bool dense = false;  ///< soft_cross_entropy: one number per vocabulary entry instead of sets
};

/// How a call is split over the ranks that mpirun starts.
struct ParallelConfig {
  int vocab = 1;  ///< ranks that share the vocabulary
  int data = 1;   ///< groups of such ranks, which share the tokens
  int ranks() const { return vocab * data; }
};

struct Config {
  /// The kName of the task, which is also the name of the section with its options.
  std::string task = CrossEntropy::kName;
  Level level = Level::kFused;
  ModelConfig model;
  int64_t batch_size = 1;
  int64_t seq_len = 2048;
  uint64_t seed = 0;

  double ignored_fraction = 0;  ///< share of the seeded targets that are ignored
  TemperatureConfig temperature;
  bool class_weights = false;  ///< seeded, uniform between 0.5 and 1.5
  bool token_weights = false;  ///< the same; drawn for mean_over token_weights, too
  int64_t top_k = 0;           ///< StatsRequest::top_k of calls without gradients

  /// The options of each task. Cross-entropy's token, loss_scale and want_entropy apply to all tasks; TaskRun
  /// of cli/common/task_call.h merges them.
  decltype(one_of_each(AllTasks())) tasks;
  PolicyConfig policy;
  KtoConfig kto;
  TeacherConfig teacher;
  SetsConfig sets;

  ContextOptions kernel;  ///< includes `threads`
  bool in_place = false;  ///< level logits: the gradient replaces the logits
  ParallelConfig parallel;
  GradientConfig gradients;
  BackwardOptions backward;
  std::map<std::string, double> tolerances;  ///< by kToleranceNames; the others follow from the types

  /// Where each key was set: "qwen.yaml:7" or "--set model.dtype".
  std::map<std::string, std::string> places;
  /// Every key that was set, as "key=value", in order: load_config({}, settings) gives the same config.
  std::vector<std::string> settings;
  size_t unswept = 0;  ///< how many of `settings` come before those from --sweep

  template <class T>
  const T& of() const {
    return std::get<T>(tasks);
  }
  template <class T>
  bool runs() const {
    return task == T::kName;
  }
  bool has_sets() const;
  /// Returns true if the seeded batch has token weights.
  bool has_token_weights() const;
  bool is_set(const std::string& key) const { return places.contains(key); }
  double tolerance(const std::string& name, double by_default) const {
    const auto it = tolerances.find(name);
    return it == tolerances.end() ? by_default : it->second;
  }
  /// Returns "qwen.yaml:7: model.dtype", or only the key if it was not set.
  std::string place_of(const std::string& key) const;
  /// Returns true if the call uses only the ids of each set: then no plan computes all logits.
  bool within_sets() const;
  /// Returns the type in which gradients are stored for inputs of `dtype`.
  DType gradient_dtype(DType dtype) const { return gradients.float32 ? DType::kFloat32 : dtype; }
};

/// Reads a config file (none: the defaults), then applies the `assignments` of --set ("model.dtype=bfloat16")
/// and the `swept` ones of --sweep, in order. Throws Error that names the file and line (or the flag), the
/// key and its rule.
Config load_config(const std::optional<std::string>& path, std::span<const std::string> assignments,
                   std::span<const std::string> swept = {});

/// Returns the texts of the values in a list such as "8, {a: 1}, [0.5, 2]"; a missing value gives an empty
/// text. Throws Error, which begins with `place`.
std::vector<std::string> list_in(const std::string& place, const std::string& list);

/// Sets one more key ("kernel.plan=two_pass") of a config that has been read. `source` is for messages.
/// Throws Error.
void set_key(Config& config, const std::string& source, const std::string& assignment);

}  // namespace logitless::io
