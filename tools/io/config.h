// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a config file or a `--set key=value` can say. Every command reads the same schema; configs/tiny.yaml
// shows all of it. A key that stands in the schema either acts or is an error where it cannot act: none is
// read and forgotten.
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

/// Makes one of each task.
template <class... T>
std::tuple<T...> one_of_each(TypeList<T...>);

/// Calls use.operator()<T>() for each task that a config can have: all but those whose results are
/// statistics.
template <class Use>
void for_each_task(const Use& use) {
  AllTasks::each([&]<class T> {
    if constexpr (!requires(typename T::Result result) { result.stats; }) use.template operator()<T>();
  });
}

/// Whether every token has a set of ids, with a number for each.
template <class T>
inline constexpr bool kHasSets = requires(T task) {
  task.sets;
}
|| requires(T task) { task.targets.sets; }
|| requires(T task) { task.teacher.sets; };

/// What a task starts from: hidden states and a head, or finished logits.
enum class Level { kFused, kLogits };
/// "fused" or "logits".
const char* name_of(Level level);
using logitless::name_of;

/// A LoRA beside the seeded head.
struct LoraConfig {
  int64_t rank = 0;            ///< r; 0: none
  double scale = 1;            ///< often alpha / r
  std::optional<DType> dtype;  ///< of a and b; empty: that of the model
};

struct ModelConfig {
  std::string name;
  int64_t hidden_size = 0;  ///< H; 0: not given
  int64_t vocab_size = 0;   ///< V; 0: not given
  HeadLayout layout = HeadLayout::kVocabHidden;
  DType dtype = DType::kFloat32;
  double softcap = 0;  ///< 0: none
  bool bias = false;
  std::optional<Packing> packing;  ///< of the seeded head; empty: it is a matrix of dtype
  std::vector<int64_t> vocab_ids;  ///< the entries of the head, and of a teacher's, that calls are over; empty: all
  LoraConfig lora;
};

struct GradientConfig {
  bool d_hidden = true;
  bool d_weight = true;
  bool d_bias = true;    ///< counts where the model has a bias
  bool d_lora_a = true;  ///< counts where the model has a LoRA, as d_lora_b does
  bool d_lora_b = true;
  bool float32 = false;  ///< dtype: float32 instead of the type of the inputs
};

/// The temperature of each token: one value for all, or drawn uniformly from [low, high) by the seed.
struct TemperatureConfig {
  double low = 1.0;
  double high = 1.0;
  bool per_token() const { return low != high; }
};

/// The seeded batch of task policy_loss.
struct PolicyConfig {
  bool advantage_per_token = false;   ///< else one a sequence
  bool on_policy = false;             ///< without old_logps
  double log_ratio_deviation = 0.25;  ///< how far the seeded old_logps lie from the policy's own
};

/// The seeded batch of task kto_loss.
struct KtoConfig {
  bool kl_baseline = true;  ///< with kl_logps
};

/// The second head of task distillation_loss.
struct TeacherConfig {
  int64_t hidden_size = 0;     ///< its own H; 0: that of the model
  std::optional<DType> dtype;  ///< empty: that of the model
  double softcap = 0;          ///< 0: none
  bool bias = false;
};

/// The seeded sets of ids.
struct SetsConfig {
  int64_t ids = 64;    ///< K, a token
  bool dense = false;  ///< soft_cross_entropy: a number for each vocabulary entry instead of sets
};

/// How a call is split over the ranks that mpirun starts.
struct ParallelConfig {
  int vocab = 1;  ///< ranks that share the vocabulary entries
  int data = 1;   ///< groups of those, that share the tokens
  int ranks() const { return vocab * data; }
};

struct Config {
  /// The kName of the task; the section with its own options has the same name.
  std::string task = CrossEntropy::kName;
  Level level = Level::kFused;
  ModelConfig model;
  int64_t batch_size = 1;
  int64_t seq_len = 2048;
  uint64_t seed = 0;

  double ignored_fraction = 0;  ///< share of the seeded targets that are ignore_index
  TemperatureConfig temperature;
  bool class_weights = false;  ///< seeded, uniform between 0.5 and 1.5
  int64_t top_k = 0;           ///< StatsRequest::top_k of calls without gradients

  /// The options of each task; token, loss_scale and want_entropy of cross-entropy hold for all (TaskRun of
  /// cli/task_call.h joins them).
  decltype(one_of_each(AllTasks())) tasks;
  PolicyConfig policy;
  KtoConfig kto;
  TeacherConfig teacher;
  SetsConfig sets;

  ContextOptions kernel;  ///< with `threads`
  bool in_place = false;  ///< level logits: the gradient replaces the logits
  ParallelConfig parallel;
  GradientConfig gradients;
  BackwardOptions backward;
  std::map<std::string, double> tolerances;  ///< by kToleranceNames; what is left out follows from the types

  /// Where each key was set: "qwen.yaml:7" or "--set model.dtype".
  std::map<std::string, std::string> places;
  /// Every key that was set, as "key=value", in order: load_config({}, settings) gives the same config.
  std::vector<std::string> settings;
  size_t unswept = 0;  ///< how many of these come before those of --sweep

  template <class T>
  const T& of() const {
    return std::get<T>(tasks);
  }
  template <class T>
  bool runs() const {
    return task == T::kName;
  }
  bool has_sets() const;
  bool is_set(const std::string& key) const { return places.contains(key); }
  double tolerance(const std::string& name, double by_default) const {
    const auto it = tolerances.find(name);
    return it == tolerances.end() ? by_default : it->second;
  }
  /// "qwen.yaml:7: model.dtype", or the key alone where it was not set.
  std::string place_of(const std::string& key) const;
  /// Whether the call works on the ids of each set alone: no plan then has the whole logits.
  bool within_sets() const;
  /// The type gradients are stored in when the inputs are `dtype`.
  DType gradient_dtype(DType dtype) const { return gradients.float32 ? DType::kFloat32 : dtype; }
};

/// Reads a config file (none: the defaults), then applies `assignments` of --set ("model.dtype=bfloat16") and
/// those of --sweep in order. Throws Error that names file and line, or the flag, and the key, with the rule.
Config load_config(const std::optional<std::string>& path, std::span<const std::string> assignments,
                   std::span<const std::string> swept = {});

/// Returns the texts of the values of a list such as "8, {a: 1}, [0.5, 2]"; that of a missing one is empty.
/// Throws Error, which begins with `place`.
std::vector<std::string> list_in(const std::string& place, const std::string& list);

/// Sets one more key ("kernel.plan=two_pass") of a config that has been read; `source` serves the messages.
/// Throws Error.
void set_key(Config& config, const std::string& source, const std::string& assignment);

}  // namespace logitless::io
