// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Inputs from safetensors, whose shapes must agree with each other and with the config.
#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/common/inputs.h"
#include "cli/common/model_files.h"
#include "core/fields.h"
#include "io/peft_lora.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;

constexpr bool kBatched = true;  // of a wish: [B, T, ...] is welcome too

const TensorFlag& flag_of(TensorId id) {
  const auto& flags = tensor_flags();
  return *std::find_if(flags.begin(), flags.end(), [id](const TensorFlag& f) { return f.id == id; });
}

io::TensorHandle open(const TensorPaths& paths, TensorId id, const io::TensorWish& wish, Inputs& inputs) {
  return inputs.open(flag_of(id).flag, paths[id], wish);
}

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

// `said` is what the config says under `key`, if anything.
DType dtype_of(const std::optional<DType>& said, const std::string& key, const io::TensorHandle& hidden,
               const io::TensorHandle& weight) {
  if (said) return *said;
  const DType of_hidden = io::natural_dtype(*hidden.tensor), of_weight = io::natural_dtype(*weight.tensor);
  if (of_hidden == of_weight) return of_hidden;
  throw Error(hidden.place() + " is " + name_of(of_hidden) + " and " + weight.place() + " is " + name_of(of_weight) +
              ": choose one with --set " + key + "=" + name_of(of_weight));
}

// What a config says about the shape must be what the tensors have: a config for another model is a mistake.
void check_size(const Config& config, const char* key, int64_t said, int64_t found, const char* what) {
  if (!config.is_set(key) || said == found) return;
  throw Error(config.place_of(key) + " is " + std::to_string(said) + ", but the tensors have " + std::to_string(found) +
              " " + what + "; correct it with --set " + key + "=" + std::to_string(found));
}

void check_shape(const Config& config, const Job& job) {
  check_size(config, "model.hidden_size", config.model.hidden_size, job.hidden_size, "hidden columns");
  check_size(config, "model.vocab_size", config.model.vocab_size, job.stored_entries, "vocabulary entries");
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

void add_sequences(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  Job& job = inputs.job;
  if (!paths.has(TensorId::kOffsets)) {
    check_size(config, "seq_len", config.seq_len, job.tokens / job.sequences, "tokens a sequence");
    return;
  }
  const io::TensorHandle handle = open(paths, TensorId::kOffsets, {"lengths", io::TensorClass::kInteger, 1}, inputs);
  std::vector<int64_t> offsets = {0};
  for (const int64_t length : io::read_integers(*handle.tensor)) {
    const std::string entry = "lengths[" + std::to_string(offsets.size() - 1) + "] = " + std::to_string(length);
    if (length < 0 || length > job.tokens - offsets.back()) {
      throw Error(handle.place() + ": " + entry + "; lengths are >= 0 and sum to the " + std::to_string(job.tokens) +
                  " rows of hidden");
    }
    if (config.is_set("seq_len") && length != config.seq_len) {
      throw Error(config.place_of("seq_len") + " is " + std::to_string(config.seq_len) + ", but " + handle.place() +
                  ": " + entry + "; leave seq_len out");
    }
    offsets.push_back(offsets.back() + length);
  }
  if (offsets.back() != job.tokens) {
    throw Error(handle.place() + ": the lengths sum to " + std::to_string(offsets.back()) + ", but hidden has " +
                std::to_string(job.tokens) + " rows");
  }
  job.sequences = static_cast<int64_t>(offsets.size()) - 1;
  check_size(config, "batch_size", config.batch_size, job.sequences, "sequences");
  inputs.add_values(TensorId::kOffsets, "offsets", offsets);
}

// Adds a bias of a head: that of the model, or that of the teacher.
void add_bias(const Config& config, const TensorPaths& paths, bool teacher, Inputs& inputs) {
  const TensorId id = teacher ? TensorId::kTeacherBias : TensorId::kBias;
  const std::string key = teacher ? "teacher.bias" : "model.bias", name = teacher ? "teacher_bias" : "bias";
  const std::string flag = teacher ? "--teacher-bias" : "--bias";
  const bool wanted = teacher ? config.teacher.bias : config.model.bias;
  if (!paths.has(id)) {
    const bool in_file_of_head = !teacher && inputs.job.head && inputs.job.head->bias.data;
    if (wanted && !in_file_of_head)
      throw Error(config.place_of(key) + " is true: real tensors need " + flag + " FILE for it");
    return;
  }
  if (config.is_set(key) && !wanted) throw Error(config.place_of(key) + " is false, but " + flag + " was given");
  const io::TensorHandle handle = open(paths, id, {name.c_str(), io::TensorClass::kFloat, 1}, inputs);
  if (handle.tensor->elements() != inputs.job.stored_entries) {
    throw Error(shape_of(handle) + ": must have one entry for each of the " +
                std::to_string(inputs.job.stored_entries) + " vocabulary entries of the head");
  }
  add_floats(handle, teacher ? inputs.job.teacher_dtype : inputs.job.dtype, id, inputs);
}

// Adds the LoRA of the head. What the config says about it must be what the adapter has.
void add_lora(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  const std::string& spec = paths[TensorId::kLoraA];
  if (spec.empty()) {
    for (const char* key : {"model.lora.rank", "model.lora.scale", "model.lora.dtype"}) {
      if (config.is_set(key) && (config.model.lora.rank > 0 || !config.is_set("model.lora.rank"))) {
        throw Error(config.place_of(key) + " is set: real tensors need --lora FILE for it");
      }
    }
    return;
  }
  Job& job = inputs.job;
  const io::PeftLora lora =
      io::of_option("--lora", [&] { return io::read_peft_lora(spec, job.stored_entries, job.hidden_size); });
  const auto check = [&](const char* key, double said, double found) {
    if (!config.is_set(key) || said == found) return;
    throw Error(config.place_of(key) + " is " + format("%.17g", said) + ", but the adapter of --lora has " +
                format("%.17g", found));
  };
  check("model.lora.rank", static_cast<double>(config.model.lora.rank), static_cast<double>(lora.rank()));
  check("model.lora.scale", config.model.lora.scale, lora.scale);
  job.lora_rank = lora.rank();
  job.lora_scale = lora.scale;
  job.lora_dtype = config.model.lora.dtype.value_or(lora.dtype(job.dtype));
  inputs.files.push_back(lora.file);
  add_floats({lora.file, lora.a}, job.lora_dtype, TensorId::kLoraA, inputs);
  add_floats({lora.file, lora.b}, job.lora_dtype, TensorId::kLoraB, inputs);
}

bool is_of_teacher(TensorId id) {
  return id == TensorId::kTeacherHidden || id == TensorId::kTeacherWeight || id == TensorId::kTeacherBias;
}

// Throws where a tensor is missing that a task cannot do without.
void check_given(const Config& config, const TensorPaths& paths, TensorId id) {
  if (paths.has(id)) return;
  throw Error("task " + config.task + " of real tensors needs " + flag_of(id).flag);
}

void check_rows(const io::TensorHandle& handle, const Job& job) {
  if (handle.tensor->rows() == job.tokens) return;
  throw Error(shape_of(handle) + ": must have one row for each of the " + std::to_string(job.tokens) +
              " rows of hidden");
}

// The library gets the entries without their axes.
void check_batch(const io::TensorHandle& handle, const Job& job) {
  const std::vector<int64_t>& shape = handle.tensor->shape;
  const bool of_tokens = shape.size() == 2 && handle.tensor->elements() == job.tokens;
  if (!of_tokens || job.sequences <= 1 || job.has(TensorId::kOffsets) || shape[0] == job.sequences) return;
  throw Error(shape_of(handle) + ": must be [" + std::to_string(job.sequences) + ", " +
              std::to_string(job.tokens / job.sequences) + "], as hidden has sequences and tokens");
}

void read_teacher(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  if (!config.runs<Distillation>()) return;
  for (const TensorId id : {TensorId::kTeacherHidden, TensorId::kTeacherWeight}) check_given(config, paths, id);
  Job& job = inputs.job;
  const io::TensorHandle hidden =
      open(paths, TensorId::kTeacherHidden, {"teacher_hidden", io::TensorClass::kFloat, 2, kBatched}, inputs);
  const io::TensorHandle weight =
      open(paths, TensorId::kTeacherWeight, {"teacher_lm_head", io::TensorClass::kFloat, 2}, inputs);
  check_rows(hidden, job);
  job.teacher_size = hidden.tensor->shape.back();
  if (config.is_set("teacher.hidden_size") && config.teacher.hidden_size != job.teacher_size) {
    throw Error(config.place_of("teacher.hidden_size") + " is " + std::to_string(config.teacher.hidden_size) +
                ", but " + shape_of(hidden) + " has " + std::to_string(job.teacher_size) + " columns");
  }
  std::vector<int64_t> shape = {job.stored_entries, job.teacher_size};
  if (job.layout == HeadLayout::kHiddenVocab) std::swap(shape[0], shape[1]);
  if (weight.tensor->shape != shape) {
    throw Error(shape_of(weight) + ": must be [" + std::to_string(shape[0]) + ", " + std::to_string(shape[1]) +
                "], the vocabulary and the layout of the student's head and the columns of teacher_hidden");
  }
  job.teacher_dtype = dtype_of(config.teacher.dtype, "teacher.dtype", hidden, weight);
  add_floats(hidden, job.teacher_dtype, TensorId::kTeacherHidden, inputs);
  add_floats(weight, job.teacher_dtype, TensorId::kTeacherWeight, inputs);
  add_bias(config, paths, true, inputs);
}

// Sets of ids, or dense rows of soft targets: all have a row for each token.
void check_sets(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  const Job& job = inputs.job;
  const bool dense = paths.has(TensorId::kSoftRows);
  if (config.is_set("sets.dense") && config.sets.dense != dense) {
    throw Error(config.place_of("sets.dense") + " is " + (dense ? "false, but" : "true: real tensors need") +
                " --soft-rows" + (dense ? " was given" : " FILE for it"));
  }
  if (dense) {
    for (const TensorId id : {TensorId::kSetIds, TensorId::kSetCounts, TensorId::kSetValues}) {
      if (!paths.has(id)) continue;
      throw Error(std::string("--soft-rows and ") + flag_of(id).flag +
                  " were given: soft targets are dense rows or sets of ids");
    }
    reject_by_hand(
        config, [](const std::string& key) { return key == "sets.ids"; }, "has no effect on --soft-rows");
    return;
  }
  for (const TensorId id : {TensorId::kSetIds, TensorId::kSetValues}) check_given(config, paths, id);
  const int64_t ids = job[TensorId::kSetIds].count(sizeof(int64_t));
  const int64_t values = job[TensorId::kSetValues].count(sizeof(double));
  if (ids != values) {
    throw Error("--set-values has " + std::to_string(values) + " entries, but --set-ids has " + std::to_string(ids));
  }
  if (config.is_set("sets.ids") && config.sets.ids * job.tokens != ids) {
    throw Error(config.place_of("sets.ids") + " is " + std::to_string(config.sets.ids) + ", but --set-ids has " +
                std::to_string(ids) + " entries for " + std::to_string(job.tokens) + " tokens");
  }
  if (job.has(TensorId::kSetCounts) || job.tokens == 0) return;
  inputs.add_values(TensorId::kSetCounts, "set_counts",
                    std::vector<int64_t>(static_cast<size_t>(job.tokens), ids / job.tokens));
}

// The sizes of vectors are the library's to check.
void read_batch(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  for (const TensorFlag& f : tensor_flags()) {
    const std::string& path = paths[f.id];
    if (f.tasks.empty() || path.empty()) continue;
    if (std::find(f.tasks.begin(), f.tasks.end(), config.task) == f.tasks.end()) {
      throw Error(std::string(f.flag) + " was given, but task " + config.task + " has no use for it");
    }
    if (is_of_teacher(f.id)) continue;
    const std::string name = f.conventional_name();
    const io::TensorHandle handle = open(paths, f.id, {name.c_str(), f.tensor_class, f.rank, f.per_token}, inputs);
    f.rank > 1 ? check_rows(handle, inputs.job) : check_batch(handle, inputs.job);
    switch (f.tensor_class) {
      case io::TensorClass::kFlag:
        inputs.add_values(f.id, name, io::read_flags(*handle.tensor));
        break;
      case io::TensorClass::kInteger:
        inputs.add_values(f.id, name, io::read_integers(*handle.tensor));
        break;
      case io::TensorClass::kFloat:
        const bool narrow = f.id == TensorId::kSoftRows && inputs.job.dtype != DType::kFloat64;
        add_floats(handle, narrow ? DType::kFloat32 : DType::kFloat64, f.id, inputs);
        break;
    }
  }
  if (config.has_sets()) check_sets(config, paths, inputs);
  read_teacher(config, paths, inputs);
}

void read_model(const Config& config, const TensorPaths& paths, const io::TensorHandle& targets, HeadFiles heads,
                Inputs& inputs) {
  Job& job = inputs.job;
  if (config.level == io::Level::kLogits) {
    const io::TensorHandle logits =
        open(paths, TensorId::kLogits, {"logits", io::TensorClass::kFloat, 2, kBatched}, inputs);
    check_targets(targets, logits, "logits");
    job.tokens = logits.tensor->rows();
    job.vocab_size = job.stored_entries = logits.tensor->shape.back();
    job.sequences = sequences_of(config, logits);
    job.dtype = config.is_set("model.dtype") ? config.model.dtype : io::natural_dtype(*logits.tensor);
    check_shape(config, job);
    add_floats(logits, job.dtype, TensorId::kLogits, inputs);
    return;
  }
  if (config.model.packing) {
    throw Error(config.place_of("model.packing") + " packs a seeded head, but --lm-head was given");
  }
  const bool packed = paths.has(TensorId::kOffsets);
  const io::TensorHandle hidden =
      open(paths, TensorId::kHidden, {"hidden", io::TensorClass::kFloat, 2, !packed}, inputs);
  const std::string& spec = paths[TensorId::kWeight];
  const bool gguf = heads == HeadFiles::kSafetensorsOrGguf && is_gguf(io::split_spec(spec).path);
  io::TensorHandle weight;
  if (!gguf) weight = open(paths, TensorId::kWeight, {"lm_head", io::TensorClass::kFloat, 2}, inputs);
  check_targets(targets, hidden, "hidden");
  job.tokens = hidden.tensor->rows();
  job.hidden_size = hidden.tensor->shape.back();
  job.sequences = packed ? 1 : sequences_of(config, hidden);
  if (gguf) {
    inputs.models = std::make_shared<ModelFiles>();
    job.head = inputs.models->head("--lm-head", spec, "lm_head", job.hidden_size);
    job.layout = job.head->layout;
    if (config.is_set("model.layout") && config.model.layout != job.layout) {
      throw Error(config.place_of("model.layout") + " is " + io::name_of(config.model.layout) +
                  ", but the head of a GGUF file is " + io::name_of(job.layout));
    }
    job.vocab_size = job.stored_entries = job.head->vocab_size();
    job.dtype = config.is_set("model.dtype") ? config.model.dtype : io::natural_dtype(*hidden.tensor);
    check_shape(config, job);
    add_floats(hidden, job.dtype, TensorId::kHidden, inputs);
    add_bias(config, paths, false, inputs);
    add_lora(config, paths, inputs);
    return;
  }
  job.layout = layout_of(config, weight, hidden);
  job.vocab_size = job.stored_entries = weight.tensor->shape[job.layout == HeadLayout::kVocabHidden ? 0 : 1];
  std::optional<DType> said;
  if (config.is_set("model.dtype")) said = config.model.dtype;
  job.dtype = dtype_of(said, "model.dtype", hidden, weight);
  check_shape(config, job);
  add_floats(hidden, job.dtype, TensorId::kHidden, inputs);
  add_floats(weight, job.dtype, TensorId::kWeight, inputs);
  add_bias(config, paths, false, inputs);
  add_lora(config, paths, inputs);
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
  using Id = TensorId;
  using Class = io::TensorClass;
  std::map<std::string, std::vector<std::string>> of;  // the tasks that have a tensor of this name
  std::vector<std::string> sets;
  io::for_each_task([&]<class Task> {
    const auto add = [&](const Field& field, const auto&) { of[field.name].push_back(Task::kName); };
    visit_fields(TensorsOf<Task>(), add, Task());
    if (io::kHasSets<Task>) sets.push_back(Task::kName);
  });
  const std::vector<std::string> soft = {SoftCrossEntropy::kName}, taught = {Distillation::kName};
  static const std::vector<TensorFlag> flags = {
      {"--hidden", "hidden states [N, H] or [B, T, H], safetensors", Id::kHidden},
      {"--lm-head", "LM head [V, H] or [H, V]", Id::kWeight},
      {"--targets", "token ids [N] or [B, T], int32 or int64", Id::kTargets},
      {"--lengths", "lengths of packed sequences, summing to N", Id::kOffsets},
      {"--bias", "bias of the head [V]", Id::kBias},
      {.flag = "--lora",
       .help = "LoRA of the head as PEFT saves it: its folder, or the safetensors file there",
       .id = Id::kLoraA,
       .names = "FILE[:MODULE]"},
      {"--vocab-ids",
       "entries of the head that the call is over [K], int32 or int64",
       Id::kVocabIds,
       {},
       1,
       false,
       Class::kInteger},
      {"--logits", "finished logits [N, V] or [B, T, V], at level logits", Id::kLogits},
      {"--mask", "which tokens count [N], bool or uint8", Id::kMask, of.at("mask"), 1, true, Class::kFlag},
      {"--advantages", "one a sequence [B] or a token [N]", Id::kAdvantages, of.at("advantages")},
      {"--old-logps", "log-probabilities under the old policy [N]", Id::kOldLogps, of.at("old_logps")},
      {"--ref-logps", "the same under the reference [N]", Id::kRefLogps, of.at("ref_logps")},
      {"--sampling-logps", "the same under the sampler [N]", Id::kSamplingLogps, of.at("sampling_logps")},
      {"--teacher-logps", "the same under the teacher [N]", Id::kTeacherLogps, of.at("teacher_logps")},
      {"--scores", "scores of the sequences [B]", Id::kScores, of.at("scores"), 1, false},
      {"--labels", "which sequences are desirable [B], bool or uint8", Id::kLabels, of.at("labels"), 1, false,
       Class::kFlag},
      {"--kl-logps", "sums of mismatched completions under the policy", Id::kKlLogps, of.at("kl_logps"), 1, false},
      {"--kl-ref-logps", "the same under the reference", Id::kKlRefLogps, of.at("kl_ref_logps"), 1, false},
      {"--sequence-weights", "factors of the sequences' losses [B]", Id::kSequenceWeights, of.at("sequence_weights"), 1,
       false},
      {"--reward-targets", "what a2po fits [B]", Id::kRewardTargets, of.at("reward_targets"), 1, false},
      {"--teacher-hidden", "the teacher's hidden states [N, H of its own]", Id::kTeacherHidden, taught, 2},
      {"--teacher-lm-head", "its LM head, in the layout of the student's", Id::kTeacherWeight, taught, 2},
      {"--teacher-bias", "the bias of its head [V]", Id::kTeacherBias, taught, 1, false},
      {"--set-ids", "token ids [N, K]", Id::kSetIds, sets, 2, true, Class::kInteger},
      {"--set-counts", "how many of its K ids a token has [N]", Id::kSetCounts, sets, 1, true, Class::kInteger},
      {"--set-values", "a weight, the teacher's log-probability, or dL/dlogp of each id [N, K]", Id::kSetValues, sets,
       2},
      {"--soft-rows", "a weight of each vocabulary entry [N, V]", Id::kSoftRows, soft, 2}};
  return flags;
}

std::string TensorFlag::help_text() const {
  std::string names;
  for (const std::string& task : tasks) names += (names.empty() ? "" : ", ") + task;
  return names.empty() ? help : names + ": " + help;
}

std::string TensorFlag::conventional_name() const {
  std::string name = flag + 2;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

void add_input_files(const std::string& flag, const std::string& spec, std::vector<InputFile>& files) {
  if (spec.empty()) return;
  const std::string what = "the file that " + flag + " names";
  io::of_option(flag, [&] {
    if (!flag.ends_with("-lora")) return files.push_back({what, io::split_spec(spec).path});
    for (const std::string& path : io::peft_files(spec)) files.push_back({what, path});
  });
}

std::vector<InputFile> TensorPaths::files() const {
  std::vector<InputFile> files;
  for (const TensorFlag& f : tensor_flags()) {
    add_input_files(f.flag, (*this)[f.id], files);
  }
  return files;
}

std::string TensorPaths::with_flag(const std::string& message) const {
  if (!given()) return message;
  // Names of the library's messages that are not those of a flag.
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"chosen_ids", "targets"},
                                                                             {"weight", "lm_head"},
                                                                             {"teacher.weight", "teacher_lm_head"},
                                                                             {"offsets", "lengths"},
                                                                             {"lora.a", "lora"},
                                                                             {"lora.b", "lora"},
                                                                             {"reference", "ref_logps"},
                                                                             {"sets.ids", "set_ids"},
                                                                             {"teacher.sets.ids", "set_ids"},
                                                                             {"sets.counts", "set_counts"},
                                                                             {"targets.sets.ids", "set_ids"},
                                                                             {"teacher.logps", "set_values"},
                                                                             {"targets.rows", "soft_rows"},
                                                                             {"targets.weights", "set_values"},
                                                                             {"upstream", "set_values"}};
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  const std::string_view teacher = "teacher: ";
  const bool of_teacher = message.starts_with(teacher);
  const auto begin = message.begin() + (of_teacher ? std::ssize(teacher) : 0);
  std::string name = of_teacher ? "teacher." : "";
  name.append(begin, std::find_if_not(begin, message.end(), is_of_name));
  for (const auto& [of_library, of_flag] : kNames) {
    if (name == of_library) name = of_flag;
  }
  std::replace(name.begin(), name.end(), '.', '_');
  for (const TensorFlag& f : tensor_flags()) {
    if (f.conventional_name() != name) continue;
    const std::string& spec = (*this)[f.id];
    return std::string(f.flag) + (spec.empty() ? "" : " " + spec) + ": " + message;
  }
  return message;
}

Inputs read_inputs(const Config& config, const TensorPaths& paths, SeededValues values, HeadFiles heads) {
  if (!paths.given()) return make_seeded_inputs(config, values);
  if (config.ignored_fraction != 0) {
    throw Error(config.place_of("ignored_fraction") + " is for seeded targets, but --targets was given");
  }
  check_level(config, paths);
  Inputs inputs;
  const io::TensorHandle targets =
      open(paths, TensorId::kTargets, {"targets", io::TensorClass::kInteger, 1, kBatched}, inputs);
  read_model(config, paths, targets, heads, inputs);
  inputs.choose_entries(config, paths[TensorId::kVocabIds]);
  inputs.add_targets(io::read_integers(*targets.tensor), targets.tensor->dtype == "I64");
  add_sequences(config, paths, inputs);
  read_batch(config, paths, inputs);
  inputs.add_what_the_config_draws(config);
  inputs.check_files();
  return inputs;
}

}  // namespace logitless::cli
