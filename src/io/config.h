// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a config file or a `--set key=value` can say. Every command reads the same schema; configs/tiny.yaml shows all
// of it. A key that stands in the schema either acts or is an error where it cannot act: none is read and forgotten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/tolerances.h"
#include "logitless/cross_entropy.h"
#include "logitless/dtype.h"

namespace logitless::io {

enum class Task { kCrossEntropy };

/// Tasks this build has, as a config spells them.
std::vector<std::string> task_names();

struct ModelConfig {
  std::string name;
  int64_t hidden_size = 0;  ///< H; 0: not given
  int64_t vocab_size = 0;   ///< V; 0: not given
  HeadLayout layout = HeadLayout::kHiddenVocab;
  DType dtype = DType::kFloat32;
  double softcap = 0;  ///< 0: none
  bool bias = false;
};

struct KernelConfig {
  int64_t block_size = 0;       ///< columns of a logits tile; 0: auto
  int64_t time_block = 0;       ///< rows of a logits tile; 0: auto
  bool dense_backward = false;  ///< bwd_impl: dense
  PlanKind plan = PlanKind::kAuto;
  std::optional<size_t> workspace_bytes;  ///< empty: the library's default
  std::string gemm_backend = "auto";
  std::string simd_target = "auto";
};

struct GradientConfig {
  bool d_hidden = true;
  bool d_weight = true;
  bool d_bias = true;    ///< counts where the model has a bias
  bool float32 = false;  ///< dtype: float32 instead of the type of the inputs
};

/// The temperature of each token: one value for all, or drawn uniformly from [low, high) by the seed.
struct TemperatureConfig {
  double low = 1.0;
  double high = 1.0;
  bool per_token() const { return low != high; }
};

struct Config {
  Task task = Task::kCrossEntropy;
  ModelConfig model;
  int64_t batch_size = 1;
  int64_t seq_len = 2048;
  uint64_t seed = 0;
  int threads = 0;  ///< 0: what OpenMP gives

  int64_t ignore_index = -100;
  double ignored_fraction = 0;  ///< share of the seeded targets that are ignore_index
  TemperatureConfig temperature;
  TemperatureMeaning temperature_meaning = TemperatureMeaning::kScaleLogits;
  Reduction reduction = Reduction::kMean;
  double label_smoothing = 0;
  double z_loss = 0;
  bool class_weights = false;  ///< seeded, uniform between 0.5 and 1.5
  double loss_scale = 1;
  std::optional<double> normaliser;
  bool shift = false;
  bool accuracy = false;
  bool entropy = false;

  KernelConfig kernel;
  GradientConfig gradients;
  ToleranceConfig tolerances;

  /// Where each key was set: "qwen.yaml:7" or "--set model.dtype".
  std::map<std::string, std::string> places;

  bool is_set(const std::string& key) const { return places.contains(key); }
  /// "qwen.yaml:7: model.dtype", or the key alone where it was not set.
  std::string place_of(const std::string& key) const;
  /// The type gradients are stored in when the inputs are `dtype`.
  DType gradient_dtype(DType dtype) const { return gradients.float32 ? DType::kFloat32 : dtype; }
};

/// Reads a config file (none: the defaults), then applies `assignments` ("model.dtype=bfloat16") in order. Throws Error
/// that names file, line and key, with the rule.
Config load_config(const std::optional<std::string>& path, std::span<const std::string> assignments);

}  // namespace logitless::io
