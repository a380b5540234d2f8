// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/inputs.h"

#include <algorithm>
#include <limits>
#include <span>

#include "cli/process_memory.h"
#include "io/seeded_inputs.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

Region add_memory(Inputs& inputs, const std::string& name, uint64_t bytes) {
  inputs.memory.emplace_back(name, bytes);
  return inputs.memory.back().region();
}

// The seeded parts that real tensors can have beside them.
void add_class_weights_and_temperatures(const Config& config, Inputs& inputs) {
  Job& job = inputs.job;
  if (config.class_weights) {
    job.class_weights =
        add_memory(inputs, "class_weights", tensor_bytes("class_weights", job.vocab_size, 1, sizeof(float)));
    const Mapping mapping(job.class_weights, Mapping::Access::kWrite);
    io::fill_seeded_class_weights(config.seed, {mapping.as<float>(), static_cast<size_t>(job.vocab_size)});
  }
  if (config.temperature.per_token()) {
    job.temperatures = add_memory(inputs, "temperatures", tensor_bytes("temperatures", job.tokens, 1, sizeof(double)));
    const Mapping mapping(job.temperatures, Mapping::Access::kWrite);
    io::fill_seeded_temperatures(config.seed, config.temperature.low, config.temperature.high,
                                 {mapping.as<double>(), static_cast<size_t>(job.tokens)});
  }
}

// Stores targets as int32 where all of them fit.
void add_targets(std::span<const int64_t> targets, bool wide, Inputs& inputs) {
  inputs.job.wide_targets = wide;
  inputs.job.targets = add_memory(inputs, "targets", targets.size() * (wide ? sizeof(int64_t) : sizeof(int32_t)));
  const Mapping mapping(inputs.job.targets, Mapping::Access::kWrite);
  if (wide) {
    std::copy(targets.begin(), targets.end(), mapping.as<int64_t>());
  } else {
    std::transform(targets.begin(), targets.end(), mapping.as<int32_t>(),
                   [](int64_t target) { return static_cast<int32_t>(target); });
  }
}

// Serves a float tensor as `dtype`: the file's own pages where they can be used, a converted copy where not.
Region add_floats(const io::TensorHandle& handle, DType dtype, Inputs& inputs) {
  const io::Tensor& tensor = *handle.tensor;
  if (io::usable_in_place(tensor, dtype)) {
    inputs.files.push_back(handle.file);
    return {handle.file->descriptor(), tensor.file_offset, tensor.bytes};
  }
  const Region region =
      add_memory(inputs, tensor.name, tensor_bytes(handle.place(), tensor.elements(), 1, size_of(dtype)));
  io::convert_floats(tensor, dtype, Mapping(region, Mapping::Access::kWrite).data());
  return region;
}

std::string shape_of(const io::TensorHandle& handle) { return handle.place() + " " + handle.tensor->shape_text(); }

HeadLayout layout_of(const Config& config, const io::TensorHandle& weight, const io::TensorHandle& hidden) {
  const int64_t rows = weight.tensor->shape[0], cols = weight.tensor->shape[1], size = hidden.tensor->shape[1];
  if (config.is_set("model.layout")) {
    const bool tall = config.model.layout == HeadLayout::kVocabHidden;
    if ((tall ? cols : rows) == size) return config.model.layout;
    throw Error(config.place_of("model.layout") + " is " + (tall ? "vocab_hidden" : "hidden_vocab") + ", so " +
                shape_of(weight) + " must have as many " + (tall ? "columns" : "rows") + " as " + shape_of(hidden) +
                " has columns");
  }
  // A square head could be either; PyTorch's own layout is the likelier.
  if (cols == size) return HeadLayout::kVocabHidden;
  if (rows == size) return HeadLayout::kHiddenVocab;
  throw Error(shape_of(weight) + ": neither rows nor columns are as many as " + shape_of(hidden) + " has columns");
}

DType dtype_of(const Config& config, const io::TensorHandle& hidden, const io::TensorHandle& weight) {
  if (config.is_set("model.dtype")) return config.model.dtype;
  const DType of_hidden = io::natural_dtype(*hidden.tensor), of_weight = io::natural_dtype(*weight.tensor);
  if (of_hidden == of_weight) return of_hidden;
  throw Error(hidden.place() + " is " + name_of(of_hidden) + " and " + weight.place() + " is " + name_of(of_weight) +
              ": choose one with --set model.dtype=" + name_of(of_weight));
}

// What a config says about the shape must be what the tensors have: a config for another model is a mistake.
void check_shape(const Config& config, const Job& job) {
  const auto check = [&](const char* key, int64_t said, int64_t found, const char* what) {
    if (!config.is_set(key) || said == found) return;
    throw Error(config.place_of(key) + " is " + std::to_string(said) + ", but the tensors have " +
                std::to_string(found) + " " + what + "; correct it with --set " + key + "=" + std::to_string(found));
  };
  check("model.hidden_size", config.model.hidden_size, job.hidden_size, "hidden columns");
  check("model.vocab_size", config.model.vocab_size, job.vocab_size, "words");
  if (job.tokens % config.batch_size != 0) {
    throw Error(config.place_of("batch_size") + " is " + std::to_string(config.batch_size) + ", but " +
                std::to_string(job.tokens) + " tokens are no multiple of it");
  }
  check("seq_len", config.seq_len, job.tokens / config.batch_size, "tokens a sequence");
}

void add_sequences(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  Job& job = inputs.job;
  job.sequences = config.batch_size;
  if (paths.lengths.empty()) return;
  const io::TensorHandle handle = io::find_tensor(paths.lengths, {"lengths", io::TensorClass::kInteger, 1});
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : io::read_integers(*handle.tensor)) {
    if (length < 0 || length > job.tokens - offsets.back()) {
      throw Error(handle.place() + ": lengths[" + std::to_string(offsets.size() - 1) + "] = " + std::to_string(length) +
                  "; lengths are >= 0 and sum to the " + std::to_string(job.tokens) + " rows of hidden");
    }
    offsets.push_back(offsets.back() + length);
  }
  if (offsets.back() != job.tokens) {
    throw Error(handle.place() + ": the lengths sum to " + std::to_string(offsets.back()) + ", but hidden has " +
                std::to_string(job.tokens) + " rows");
  }
  job.offsets = add_memory(inputs, "offsets", offsets.size() * sizeof(int64_t));
  std::copy(offsets.begin(), offsets.end(), Mapping(job.offsets, Mapping::Access::kWrite).as<int64_t>());
}

void add_bias(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  if (paths.bias.empty()) {
    if (config.model.bias)
      throw Error(config.place_of("model.bias") + " is true: real tensors need --bias FILE for it");
    return;
  }
  if (config.is_set("model.bias") && !config.model.bias) {
    throw Error(config.place_of("model.bias") + " is false, but --bias was given");
  }
  const io::TensorHandle handle = io::find_tensor(paths.bias, {"bias", io::TensorClass::kFloat, 1});
  if (handle.tensor->elements() != inputs.job.vocab_size) {
    throw Error(shape_of(handle) + ": must have one entry for each of the " + std::to_string(inputs.job.vocab_size) +
                " words of the head");
  }
  inputs.job.bias = add_floats(handle, inputs.job.dtype, inputs);
}

}  // namespace

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

Inputs make_seeded_inputs(const Config& config) {
  if (!config.is_set("model.hidden_size") || !config.is_set("model.vocab_size")) {
    throw Error(std::string(config.is_set("model.hidden_size") ? "model.vocab_size" : "model.hidden_size") +
                " is not given: name a config such as configs/tiny.yaml, set it with --set, or give real tensors");
  }
  Inputs inputs;
  Job& job = inputs.job;
  job.tokens = static_cast<int64_t>(tensor_bytes("batch_size x seq_len", config.batch_size, config.seq_len, 1));
  job.sequences = config.batch_size;
  job.hidden_size = config.model.hidden_size;
  job.vocab_size = config.model.vocab_size;
  job.dtype = config.model.dtype;
  job.layout = config.model.layout;
  const size_t element = size_of(job.dtype);
  const uint64_t hidden_bytes = tensor_bytes("hidden", job.tokens, job.hidden_size, element);
  const uint64_t head_bytes = tensor_bytes("lm_head", job.hidden_size, job.vocab_size, element);
  check_available(hidden_bytes + head_bytes, "the inputs");

  job.hidden = add_memory(inputs, "hidden", hidden_bytes);
  io::fill_seeded_hidden(config.seed, job.dtype, job.tokens, job.hidden_size,
                         Mapping(job.hidden, Mapping::Access::kWrite).data());
  job.weight = add_memory(inputs, "lm_head", head_bytes);
  io::fill_seeded_head(config.seed, job.dtype, job.layout, job.hidden_size, job.vocab_size,
                       Mapping(job.weight, Mapping::Access::kWrite).data());
  if (config.model.bias) {
    job.bias = add_memory(inputs, "bias", tensor_bytes("bias", job.vocab_size, 1, element));
    io::fill_seeded_bias(config.seed, job.dtype, job.vocab_size, Mapping(job.bias, Mapping::Access::kWrite).data());
  }
  std::vector<int64_t> targets(static_cast<size_t>(job.tokens));
  io::fill_seeded_targets(config.seed, job.vocab_size, config.ignored_fraction, config.ignore_index, targets);
  const bool wide = job.vocab_size > kMaxInt32 || config.ignore_index > kMaxInt32 || config.ignore_index < -kMaxInt32;
  add_targets(targets, wide, inputs);
  add_class_weights_and_temperatures(config, inputs);
  return inputs;
}

Inputs read_inputs(const Config& config, const TensorPaths& paths) {
  if (config.ignored_fraction != 0) {
    throw Error(config.place_of("ignored_fraction") + " is for seeded targets, but --targets was given");
  }
  const io::TensorHandle hidden = io::find_tensor(paths.hidden, {"hidden", io::TensorClass::kFloat, 2});
  const io::TensorHandle weight = io::find_tensor(paths.lm_head, {"lm_head", io::TensorClass::kFloat, 2});
  const io::TensorHandle targets = io::find_tensor(paths.targets, {"targets", io::TensorClass::kInteger, 1});
  Inputs inputs;
  Job& job = inputs.job;
  job.tokens = hidden.tensor->shape[0];
  job.hidden_size = hidden.tensor->shape[1];
  job.layout = layout_of(config, weight, hidden);
  job.vocab_size = weight.tensor->shape[job.layout == HeadLayout::kVocabHidden ? 0 : 1];
  job.dtype = dtype_of(config, hidden, weight);
  if (targets.tensor->elements() != job.tokens) {
    throw Error(shape_of(targets) + ": must have one entry for each row of " + shape_of(hidden));
  }
  check_shape(config, job);
  job.hidden = add_floats(hidden, job.dtype, inputs);
  job.weight = add_floats(weight, job.dtype, inputs);
  add_bias(config, paths, inputs);
  add_targets(io::read_integers(*targets.tensor), targets.tensor->dtype == "I64", inputs);
  add_sequences(config, paths, inputs);
  add_class_weights_and_temperatures(config, inputs);
  return inputs;
}

}  // namespace logitless::cli
