// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs from safetensors, whose shapes must agree with each other and with the config.
#include <algorithm>

#include "cli/common/inputs.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;

constexpr bool kBatched = true;  // of a wish: [B, T, ...] is welcome too

// Serves a float tensor as `dtype`: the file's own pages where they can be used, a converted copy where not.
void add_floats(const io::TensorHandle& handle, DType dtype, TensorId id, Inputs& inputs) {
  const io::Tensor& tensor = *handle.tensor;
  if (io::usable_in_place(tensor, dtype) && tensor.bytes > 0) {
    inputs.job[id] = {tensor.data, tensor.bytes};
    return;
  }
  const uint64_t bytes = tensor_bytes(handle.place(), tensor.elements(), 1, size_of(dtype));
  io::convert_floats(tensor, dtype, inputs.add(id, tensor.name, bytes));
}

std::string shape_of(const io::TensorHandle& handle) { return handle.place() + " " + handle.tensor->shape_text(); }

HeadLayout layout_of(const Config& config, const io::TensorHandle& weight, const io::TensorHandle& hidden) {
  const int64_t rows = weight.tensor->shape[0], cols = weight.tensor->shape[1], size = hidden.tensor->shape.back();
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
  check("model.vocab_size", config.model.vocab_size, job.vocab_size, "vocabulary entries");
  check("seq_len", config.seq_len, job.tokens / job.sequences, "tokens a sequence");
}

// [B, T, ...] says how many sequences there are, [N, ...] leaves it to the config.
int64_t sequences_of(const Config& config, const io::TensorHandle& handle) {
  const std::vector<int64_t>& shape = handle.tensor->shape;
  if (shape.size() < 3 || shape[0] == 0) {
    if (handle.tensor->rows() % config.batch_size == 0) return config.batch_size;
    throw Error(config.place_of("batch_size") + " is " + std::to_string(config.batch_size) + ", but " +
                std::to_string(handle.tensor->rows()) + " tokens are no multiple of it");
  }
  if (!config.is_set("batch_size") || config.batch_size == shape[0]) return shape[0];
  throw Error(config.place_of("batch_size") + " is " + std::to_string(config.batch_size) + ", but " + shape_of(handle) +
              " holds " + std::to_string(shape[0]) + " sequences");
}

// An entry a token, as [N] or in the same [B, T] as what they belong to.
void check_targets(const io::TensorHandle& targets, const io::TensorHandle& states, const char* name) {
  const std::vector<int64_t>&of_targets = targets.tensor->shape, &of_states = states.tensor->shape;
  const bool same_batch = of_targets.size() < 2 || of_states.size() < 3 || of_targets[0] == of_states[0];
  if (same_batch && targets.tensor->elements() == states.tensor->rows()) return;
  throw Error(shape_of(targets) + ": must have one entry for each of the " + std::to_string(states.tensor->rows()) +
              " rows of " + name + (same_batch ? "" : " " + states.tensor->shape_text()));
}

void add_sequences(const TensorPaths& paths, Inputs& inputs) {
  Job& job = inputs.job;
  if (!paths.has(TensorId::kOffsets)) return;
  const io::TensorHandle handle = inputs.open(paths[TensorId::kOffsets], {"lengths", io::TensorClass::kInteger, 1});
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
  job.sequences = static_cast<int64_t>(offsets.size()) - 1;
  inputs.add_values(TensorId::kOffsets, "offsets", offsets);
}

void add_bias(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  if (!paths.has(TensorId::kBias)) {
    if (config.model.bias)
      throw Error(config.place_of("model.bias") + " is true: real tensors need --bias FILE for it");
    return;
  }
  if (config.is_set("model.bias") && !config.model.bias) {
    throw Error(config.place_of("model.bias") + " is false, but --bias was given");
  }
  const io::TensorHandle handle = inputs.open(paths[TensorId::kBias], {"bias", io::TensorClass::kFloat, 1});
  if (handle.tensor->elements() != inputs.job.vocab_size) {
    throw Error(shape_of(handle) + ": must have one entry for each of the " + std::to_string(inputs.job.vocab_size) +
                " vocabulary entries of the head");
  }
  add_floats(handle, inputs.job.dtype, TensorId::kBias, inputs);
}

// Their sizes are the library's to check.
void read_batch(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  for (const TensorFlag& f : tensor_flags()) {
    const std::string& path = paths[f.id];
    if (f.tasks.empty() || path.empty()) continue;
    if (std::find(f.tasks.begin(), f.tasks.end(), config.task) == f.tasks.end()) {
      throw Error(std::string(f.flag) + " was given, but task " + io::name_of(config.task) + " has no use for it");
    }
    const std::string name = f.conventional_name();
    const bool flags = f.id == TensorId::kMask || f.id == TensorId::kLabels;
    const io::TensorClass tensor_class = flags ? io::TensorClass::kFlag : io::TensorClass::kFloat;
    const io::TensorHandle handle = inputs.open(path, {name.c_str(), tensor_class, 1, f.per_token});
    if (flags) {
      inputs.add_values(f.id, name, io::read_flags(*handle.tensor));
    } else {
      add_floats(handle, DType::kFloat64, f.id, inputs);
    }
  }
}

void read_model(const Config& config, const TensorPaths& paths, const io::TensorHandle& targets, Inputs& inputs) {
  Job& job = inputs.job;
  if (config.level == io::Level::kLogits) {
    const io::TensorHandle logits =
        inputs.open(paths[TensorId::kLogits], {"logits", io::TensorClass::kFloat, 2, kBatched});
    check_targets(targets, logits, "logits");
    job.tokens = logits.tensor->rows();
    job.vocab_size = logits.tensor->shape.back();
    job.sequences = sequences_of(config, logits);
    job.dtype = config.is_set("model.dtype") ? config.model.dtype : io::natural_dtype(*logits.tensor);
    check_shape(config, job);
    add_floats(logits, job.dtype, TensorId::kLogits, inputs);
    return;
  }
  const bool packed = paths.has(TensorId::kOffsets);
  const io::TensorHandle hidden =
      inputs.open(paths[TensorId::kHidden], {"hidden", io::TensorClass::kFloat, 2, !packed});
  const io::TensorHandle weight = inputs.open(paths[TensorId::kWeight], {"lm_head", io::TensorClass::kFloat, 2});
  check_targets(targets, hidden, "hidden");
  job.tokens = hidden.tensor->rows();
  job.hidden_size = hidden.tensor->shape.back();
  job.sequences = sequences_of(config, hidden);
  job.layout = layout_of(config, weight, hidden);
  job.vocab_size = weight.tensor->shape[job.layout == HeadLayout::kVocabHidden ? 0 : 1];
  job.dtype = dtype_of(config, hidden, weight);
  check_shape(config, job);
  add_floats(hidden, job.dtype, TensorId::kHidden, inputs);
  add_floats(weight, job.dtype, TensorId::kWeight, inputs);
  add_bias(config, paths, inputs);
}

void check_level(const Config& config, const TensorPaths& paths) {
  if (!paths.has(TensorId::kHidden) && !paths.has(TensorId::kLogits))
    throw Error("--targets requires --hidden and --lm-head, or --logits");
  if (config.level == io::Level::kLogits) {
    if (!paths.has(TensorId::kLogits)) throw Error("--hidden was given, but level logits takes --logits");
    if (paths.has(TensorId::kOffsets)) throw Error("--lengths was given, but logits are [B, T, V]: set batch_size");
  } else if (!paths.has(TensorId::kHidden)) {
    throw Error("--logits was given, but level fused takes --hidden and --lm-head: set level=logits");
  }
}

}  // namespace

const std::vector<TensorFlag>& tensor_flags() {
  using io::Task;
  using Id = TensorId;
  const std::vector<Task> grpo = {Task::kGrpo}, kto = {Task::kKto}, all = {Task::kGrpo, Task::kDpo, Task::kKto};
  static const std::vector<TensorFlag> flags = {
      {"--hidden", "hidden states [N, H] or [B, T, H], safetensors", Id::kHidden},
      {"--lm-head", "LM head [V, H] or [H, V]", Id::kWeight},
      {"--targets", "token ids [N] or [B, T], int32 or int64", Id::kTargets},
      {"--lengths", "lengths of packed sequences, summing to N", Id::kOffsets},
      {"--bias", "bias of the head [V]", Id::kBias},
      {"--logits", "finished logits [N, V] or [B, T, V], at level logits", Id::kLogits},
      {"--mask", "grpo: which tokens count [N], bool or uint8", Id::kMask, grpo},
      {"--advantages", "grpo: one a sequence [B] or a token [N]", Id::kAdvantages, grpo},
      {"--old-logps", "grpo: log-probabilities under the old policy [N]", Id::kOldLogps, grpo},
      {"--ref-logps", "grpo, dpo, kto: the same under the reference [N]", Id::kRefLogps, all},
      {"--sampling-logps", "grpo: the same under the sampler [N]", Id::kSamplingLogps, grpo},
      {"--teacher-logps", "grpo: the same under the teacher [N]", Id::kTeacherLogps, grpo},
      {"--labels", "kto: which sequences are desirable [B], bool or uint8", Id::kLabels, kto, false},
      {"--kl-logps", "kto: sums of mismatched completions under the policy", Id::kKlLogps, kto, false},
      {"--kl-ref-logps", "kto: and under the reference", Id::kKlRefLogps, kto, false}};
  return flags;
}

std::string TensorFlag::conventional_name() const {
  std::string name = flag + 2;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<InputFile> TensorPaths::files() const {
  std::vector<InputFile> files;
  for (const TensorFlag& f : tensor_flags()) {
    const std::string& spec = (*this)[f.id];
    if (!spec.empty()) files.push_back({std::string("the file that ") + f.flag + " names", io::split_spec(spec).path});
  }
  return files;
}

Inputs read_inputs(const Config& config, const TensorPaths& paths, SeededValues values) {
  if (!paths.given()) return make_seeded_inputs(config, values);
  if (config.ignored_fraction != 0) {
    throw Error(config.place_of("ignored_fraction") + " is for seeded targets, but --targets was given");
  }
  if (io::has_sets(config.task) || config.task == io::Task::kDistillation) {
    throw Error("--targets was given, but task " + std::string(io::name_of(config.task)) +
                " takes seeded inputs alone");
  }
  check_level(config, paths);
  Inputs inputs;
  const io::TensorHandle targets =
      inputs.open(paths[TensorId::kTargets], {"targets", io::TensorClass::kInteger, 1, kBatched});
  read_model(config, paths, targets, inputs);
  inputs.add_targets(io::read_integers(*targets.tensor), targets.tensor->dtype == "I64");
  add_sequences(paths, inputs);
  read_batch(config, paths, inputs);
  inputs.add_what_the_config_draws(config);
  inputs.check_files();
  return inputs;
}

}  // namespace logitless::cli
