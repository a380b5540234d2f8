// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/inputs.h"

#include <algorithm>
#include <limits>

#include "cli/process_memory.h"
#include "io/seeded_inputs.h"

namespace logitless::cli {

using io::Config;
using io::Error;

Mapping Inputs::add(TensorId id, const std::string& name, uint64_t bytes) {
  memory.emplace_back(name, bytes);
  job[id] = memory.back().region();
  return memory.back().map_writable();
}

io::TensorHandle Inputs::open(const std::string& spec, const io::TensorWish& wish) {
  io::TensorHandle handle = io::find_tensor(spec, wish);
  files.push_back(handle.file);
  return handle;
}

void Inputs::check_files() const {
  for (const auto& file : files) file->check_size();
}

void Inputs::add_targets(const std::vector<int64_t>& targets, bool wide) {
  job.wide_targets = wide;
  if (wide) return add_values(TensorId::kTargets, "targets", targets);
  std::vector<int32_t> narrow;
  for (const int64_t target : targets) narrow.push_back(static_cast<int32_t>(target));
  add_values(TensorId::kTargets, "targets", narrow);
}

void Inputs::add_what_the_config_draws(const Config& config) {
  if (config.class_weights) {
    const uint64_t bytes = tensor_bytes("class_weights", job.vocab_size, 1, sizeof(float));
    const Mapping mapping = add(TensorId::kClassWeights, "class_weights", bytes);
    io::fill_seeded_class_weights(config.seed, {mapping.as<float>(), static_cast<size_t>(job.vocab_size)});
  }
  if (config.temperature.per_token()) {
    const uint64_t bytes = tensor_bytes("temperatures", job.tokens, 1, sizeof(double));
    const Mapping mapping = add(TensorId::kTemperatures, "temperatures", bytes);
    io::fill_seeded_temperatures(config.seed, config.temperature.low, config.temperature.high,
                                 {mapping.as<double>(), static_cast<size_t>(job.tokens)});
  }
}

void Inputs::add_settings(const Config& config) {
  std::string text;
  for (const std::string& setting : config.settings) text.append(setting).push_back('\0');
  memory.emplace_back("settings", text.size());
  job.settings = memory.back().region();
  std::copy(text.begin(), text.end(), memory.back().map_writable().as<char>());
}

void check_outputs(const Config& config, bool has_bias) {
  const auto reject = [&](const char* key, const char* reason) { throw Error(config.place_of(key) + " " + reason); };
  if (config.level == io::Level::kLogits) return;
  const io::GradientConfig& wanted = config.gradients;
  if (!has_bias) {
    if (config.is_set("gradients.d_bias") && wanted.d_bias) reject("gradients.d_bias", "needs a bias");
    if (config.tolerances.d_bias_rel_l2) reject("tolerances.d_bias_rel_l2", "needs a bias");
  }
  const bool any = wanted.d_hidden || wanted.d_weight || (wanted.d_bias && has_bias);
  if (wanted.float32 && !any) reject("gradients.dtype", "needs a gradient");
}

std::vector<SharedMemory> add_outputs(const Config& config, Job& job) {
  check_outputs(config, job.has(TensorId::kBias));
  std::vector<SharedMemory> memory;
  job.gradient_dtype = config.gradient_dtype(job.dtype);
  const size_t element = size_of(job.gradient_dtype);
  const auto add = [&](TensorId id, const char* name, int64_t rows, int64_t cols, size_t element_bytes) {
    memory.emplace_back(name, tensor_bytes(name, rows, cols, element_bytes));
    job[id] = memory.back().region();
  };
  if (config.level == io::Level::kLogits) {
    add(TensorId::kDLogits, "dlogits", job.tokens, job.vocab_size, element);
  } else {
    if (config.gradients.d_hidden) add(TensorId::kDHidden, "d_hidden", job.tokens, job.hidden_size, element);
    if (config.gradients.d_weight) add(TensorId::kDWeight, "d_weight", job.hidden_size, job.vocab_size, element);
    if (config.gradients.d_bias && job.has(TensorId::kBias))
      add(TensorId::kDBias, "d_bias", job.vocab_size, 1, element);
  }
  if (config.task == io::Task::kCrossEntropy && config.reduction == Reduction::kNone) {
    add(TensorId::kLosses, "losses", job.tokens, 1, sizeof(double));
  }
  return memory;
}

void check_available(uint64_t bytes, const std::string& what) {
  const int64_t available = available_memory();
  if (available > 0 && bytes > static_cast<uint64_t>(available)) {
    throw Error(what + " alone need " + std::to_string(bytes >> 20) + " MiB of memory and " +
                std::to_string(available >> 20) + " MiB are available: choose a smaller shape");
  }
}

uint64_t tensor_bytes(const std::string& what, int64_t rows, int64_t cols, size_t element_bytes) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) ||
      __builtin_mul_overflow(bytes, static_cast<int64_t>(element_bytes), &bytes)) {
    throw Error(what + ": " + std::to_string(rows) + " x " + std::to_string(cols) +
                " elements are more than 2^63 bytes");
  }
  return static_cast<uint64_t>(bytes);
}

}  // namespace logitless::cli
