// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Reads inputs from safetensors, whose shapes must agree with each other and with the config.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/common/inputs.h"
#include "core/fields.h"
#include "io/peft_lora.h"

namespace logitless::cli {
namespace {

using io::Config;
using io::Error;

// The tensors that read_teacher() reads.
constexpr const char* kOfTeacher[] = {"teacher_hidden", "teacher_lm_head", "teacher_bias"};
constexpr bool kBatched = true;  // for a TensorWish: [B, T, ...] is accepted too

io::TensorHandle open(const TensorPaths& paths, const char* name, io::TensorClass of, int rank, bool batched,
                      Inputs& inputs) {
  return inputs.files.open(flag_of(name), paths[name], {name, of, rank, batched});
}
io::TensorHandle open_floats(const TensorPaths& paths, const char* name, int rank, bool batched, Inputs& inputs) {
  return open(paths, name, io::TensorClass::kFloat, rank, batched, inputs);
}

// Adds a float tensor as `dtype`: in the file's own pages if possible, else as a converted copy. A matrix
// keeps the file's rows, not divided into sequences.
void add_floats(const io::TensorHandle& handle, DType dtype, const std::string& name, const std::string& axes,
                Inputs& inputs) {
  const io::Tensor& tensor = *handle.tensor;
  const bool vector = axes.size() == 1;
  const int64_t rows = vector ? tensor.elements() : tensor.rows(), cols = vector ? 1 : tensor.shape.back();
  if (io::usable_in_place(tensor, dtype) && tensor.bytes > 0) {
    const void* const data = tensor.data;
    inputs.job.tensors[name] = {vector ? ConstTensor(data, dtype, {rows}) : ConstTensor(data, dtype, {rows, cols}),
                                axes};
    return;
  }
  tensor_bytes(handle.place(), tensor.elements(), 1, size_of(dtype));
  io::convert_floats(tensor, dtype, inputs.add(name, axes, dtype, rows, cols));
}

std::string shape_of(const io::TensorHandle& handle) { return handle.place() + " " + handle.tensor->shape_text(); }

HeadLayout layout_of(const Config& config, const io::TensorHandle& weight, const io::TensorHandle& hidden) {
  const int64_t rows = weight.tensor->shape[0], cols = weight.tensor->shape[1], size = hidden.tensor->shape.back();
  if (config.is_set("model.layout")) {
    const bool is_vocab_hidden = config.model.layout == HeadLayout::kVocabHidden;
    if ((is_vocab_hidden ? cols : rows) == size) return config.model.layout;
    throw Error(config.place_of("model.layout") + " is " + (is_vocab_hidden ? "vocab_hidden" : "hidden_vocab") +
                ", so " + shape_of(weight) + " must have as many " + (is_vocab_hidden ? "columns" : "rows") + " as " +
                shape_of(hidden) + " has columns");
  }
  // A square head could have either layout; PyTorch's [V, H] is likelier.
  if (cols == size) return HeadLayout::kVocabHidden;
  if (rows == size) return HeadLayout::kHiddenVocab;
  throw Error(shape_of(weight) + ": neither dimension fits " + shape_of(hidden) +
              ", whose columns are the hidden size");
}

// `configured` is the config's value of `key`, if it is set.
DType dtype_of(const std::optional<DType>& configured, const std::string& key, const io::TensorHandle& hidden,
               const io::TensorHandle& weight) {
  if (configured) return *configured;
  const DType of_hidden = io::natural_dtype(*hidden.tensor), of_weight = io::natural_dtype(*weight.tensor);
  if (of_hidden == of_weight) return of_hidden;
  throw Error(hidden.place() + " is " + name_of(of_hidden) + " and " + weight.place() + " is " + name_of(of_weight) +
              ": choose one with --set " + key + "=" + name_of(of_weight));
}

// Throws if the config contradicts the tensors: it is probably for another model. `has` says whose number
// `found` is: "the tensors have".
void check_number(const Config& config, const char* key, double configured, double found, const std::string& what,
                  const std::string& has = "the tensors have") {
  if (!config.is_set(key) || configured == found) return;
  const auto text = [](double number) { return format("%.17g", number); };
  throw Error(config.place_of(key) + " is " + text(configured) + ", but " + has + " " + text(found) + what +
              "; correct it with --set " + key + "=" + text(found));
}
// The same for integers below 2^53.
void check_size(const Config& config, const char* key, int64_t configured, int64_t found, const std::string& what,
                const std::string& has = "the tensors have") {
  check_number(config, key, static_cast<double>(configured), static_cast<double>(found), " " + what, has);
}

void check_shape(const Config& config, const Job& job) {
  check_size(config, "model.hidden_size", config.model.hidden_size, job.hidden_size, "hidden columns");
  check_size(config, "model.vocab_size", config.model.vocab_size, job.stored_entries, "vocabulary entries");
}

// [B, T, ...] gives the number of sequences; for [N, ...] the config does.
int64_t sequences_of(const Config& config, const io::TensorHandle& handle) {
  const std::vector<int64_t>& shape = handle.tensor->shape;
  if (shape.size() < 3 || shape[0] == 0) {
    if (handle.tensor->rows() % config.batch_size == 0) return config.batch_size;
    throw Error(config.place_of("batch_size") + " is " + std::to_string(config.batch_size) + ", but " +
                std::to_string(handle.tensor->rows()) + " tokens are not a multiple of it");
  }
  check_size(config, "batch_size", config.batch_size, shape[0], "sequences", shape_of(handle) + " holds");
  return shape[0];
}

// Throws unless there is one target per row of `states`, as [N] or in the same [B, T].
void check_targets(const io::TensorHandle& targets, const io::TensorHandle& states, const char* name) {
  const std::vector<int64_t>&of_targets = targets.tensor->shape, &of_states = states.tensor->shape;
  const bool same_batch = of_targets.size() < 2 || of_states.size() < 3 || of_targets[0] == of_states[0];
  if (same_batch && targets.tensor->elements() == states.tensor->rows()) return;
  throw Error(shape_of(targets) + ": must have one entry for each of the " + std::to_string(states.tensor->rows()) +
              " rows of " + name + (same_batch ? "" : " " + states.tensor->shape_text()));
}

void add_sequences(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  Job& job = inputs.job;
  if (!paths.has("lengths")) {
    check_size(config, "seq_len", config.seq_len, job.tokens / job.sequences, "tokens per sequence");
    return;
  }
  const io::TensorHandle handle = open(paths, "lengths", io::TensorClass::kInteger, 1, false, inputs);
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
  inputs.add_values("offsets", "S", offsets);
}

// Adds the bias of the model's or the teacher's head; `key` is the config's key for it.
void add_bias(const Config& config, const TensorPaths& paths, const char* name, const char* key, bool wanted,
              DType dtype, Inputs& inputs) {
  if (!paths.has(name)) {
    const bool in_file_of_head = inputs.job.head && inputs.job.head->bias.given();
    if (wanted && !in_file_of_head)
      throw Error(config.place_of(key) + " is true: real tensors need " + flag_of(name) + " FILE for it");
    return;
  }
  if (config.is_set(key) && !wanted)
    throw Error(config.place_of(key) + " is false, but " + flag_of(name) + " was given");
  const io::TensorHandle handle = open_floats(paths, name, 1, false, inputs);
  if (handle.tensor->elements() != inputs.job.stored_entries) {
    throw Error(shape_of(handle) + ": must have one entry for each of the " +
                std::to_string(inputs.job.stored_entries) + " vocabulary entries of the head");
  }
  add_floats(handle, dtype, name, "V", inputs);
}

// Adds the LoRA of the head. The config must agree with the adapter.
void add_lora(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  const std::string spec = paths["lora"];
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
  const std::string has = "the adapter of --lora " + spec + " has";
  check_size(config, "model.lora.rank", config.model.lora.rank, lora.rank(), "rows of lora_A", has);
  check_number(config, "model.lora.scale", config.model.lora.scale, lora.scale, "", has);
  job.lora_rank = lora.rank();
  job.lora_scale = lora.scale;
  job.lora_dtype = config.model.lora.dtype.value_or(lora.dtype(job.dtype));
  inputs.files.keep(lora.file);
  add_floats({lora.file, lora.a}, job.lora_dtype, "lora_a", "RH", inputs);
  add_floats({lora.file, lora.b}, job.lora_dtype, "lora_b", "VR", inputs);
}

// Throws if a tensor that the task requires is missing.
void check_given(const Config& config, const TensorPaths& paths, const char* name) {
  if (!paths.has(name)) throw Error("task " + config.task + " on real tensors needs " + flag_of(name));
}

void check_rows(const io::TensorHandle& handle, const Job& job) {
  if (handle.tensor->rows() == job.tokens) return;
  throw Error(shape_of(handle) + ": must have one row for each of the " + std::to_string(job.tokens) +
              " rows of hidden");
}

// Checks that a [B, T] vector is divided as hidden is: the library gets its entries without their axes.
void check_batch(const io::TensorHandle& handle, const Job& job) {
  const std::vector<int64_t>& shape = handle.tensor->shape;
  const bool of_tokens = shape.size() == 2 && handle.tensor->elements() == job.tokens;
  if (!of_tokens || job.sequences <= 1 || job.has("offsets") || shape[0] == job.sequences) return;
  throw Error(shape_of(handle) + ": must be [" + std::to_string(job.sequences) + ", " +
              std::to_string(job.tokens / job.sequences) + "], as hidden has sequences and tokens");
}

void read_teacher(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  if (!config.runs<Distillation>()) return;
  for (const char* name : {"teacher_hidden", "teacher_lm_head"}) check_given(config, paths, name);
  Job& job = inputs.job;
  const io::TensorHandle hidden = open_floats(paths, "teacher_hidden", 2, kBatched, inputs);
  const io::TensorHandle weight = open_floats(paths, "teacher_lm_head", 2, false, inputs);
  check_rows(hidden, job);
  job.teacher_size = hidden.tensor->shape.back();
  check_size(config, "teacher.hidden_size", config.teacher.hidden_size, job.teacher_size, "columns",
             shape_of(hidden) + " has");
  std::vector<int64_t> shape = {job.stored_entries, job.teacher_size};
  const bool wide = job.layout == HeadLayout::kHiddenVocab;
  if (wide) std::swap(shape[0], shape[1]);
  if (weight.tensor->shape != shape) {
    throw Error(shape_of(weight) + ": must be [" + std::to_string(shape[0]) + ", " + std::to_string(shape[1]) +
                "], the vocabulary and the layout of the student's head and the columns of teacher_hidden");
  }
  job.teacher_dtype = dtype_of(config.teacher.dtype, "teacher.dtype", hidden, weight);
  add_floats(hidden, job.teacher_dtype, "teacher_hidden", "NH", inputs);
  add_floats(weight, job.teacher_dtype, "teacher_lm_head", wide ? "HV" : "VH", inputs);
  add_bias(config, paths, "teacher_bias", "teacher.bias", config.teacher.bias, job.teacher_dtype, inputs);
}

// Checks the sets of ids, or the dense rows of soft targets. Both already have one row per token.
void check_sets(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  const Job& job = inputs.job;
  const bool dense = paths.has("soft_rows");
  if (config.is_set("sets.dense") && config.sets.dense != dense) {
    throw Error(config.place_of("sets.dense") + " is " + (dense ? "false, but" : "true: real tensors need") +
                " --soft-rows" + (dense ? " was given" : " FILE for it"));
  }
  if (dense) {
    for (const char* name : {"set_ids", "set_counts", "set_values"}) {
      if (!paths.has(name)) continue;
      throw Error("--soft-rows and " + flag_of(name) + " were given: soft targets are dense rows or sets of ids");
    }
    reject_by_hand(
        config, [](const std::string& key) { return key == "sets.ids"; }, "has no effect on --soft-rows");
    return;
  }
  for (const char* name : {"set_ids", "set_values"}) check_given(config, paths, name);
  const int64_t ids = job["set_ids"].view.count(), values = job["set_values"].view.count();
  if (ids != values) {
    throw Error("--set-values has " + std::to_string(values) + " entries, but --set-ids has " + std::to_string(ids));
  }
  check_size(config, "sets.ids", config.sets.ids, job["set_ids"].view.last_size(), "ids per token",
             "--set-ids " + paths["set_ids"] + " has");
  if (job.has("set_counts") || job.tokens == 0) return;
  inputs.add_values("set_counts", "N", std::vector<int64_t>(static_cast<size_t>(job.tokens), ids / job.tokens));
}

// Returns the axes of a task's tensor, as in JobTensor::axes.
std::string axes_of(const TensorUse& use, int64_t count, const Job& job) {
  if (use.is_matrix()) return use.shape == "[N, V]" ? "NW" : "NK";
  const bool of_tokens = use.per_token(), of_sequences = use.shape.starts_with("[B]");
  if (of_tokens && of_sequences) return count == job.tokens ? "N" : "B";
  return of_tokens ? "N" : of_sequences ? "B" : "J";
}

// Reads the task's tensors. The library checks the sizes of vectors.
void read_batch(const Config& config, const TensorPaths& paths, Inputs& inputs) {
  const Job& job = inputs.job;
  for (const TensorFlag& f : tensor_flags()) {
    if (f.of_model() || !paths.has(f.name)) continue;
    const auto use =
        std::ranges::find_if(f.uses, [&](const TensorUse& u) { return std::ranges::count(u.tasks, config.task) > 0; });
    if (use == f.uses.end()) {
      throw Error(flag_of(f.name) + " was given, but task " + config.task + " has no use for it");
    }
    if (std::ranges::count(kOfTeacher, f.name) > 0) continue;
    const bool matrix = use->is_matrix();
    const io::TensorHandle handle =
        open(paths, f.name.c_str(), f.tensor_class, matrix ? 2 : 1, use->per_token(), inputs);
    matrix ? check_rows(handle, job) : check_batch(handle, job);
    const io::Tensor& tensor = *handle.tensor;
    const std::string axes = axes_of(*use, tensor.elements(), job);
    if (f.tensor_class == io::TensorClass::kFloat) {
      const bool narrow = f.name == "soft_rows" && job.dtype != DType::kFloat64;
      add_floats(handle, narrow ? DType::kFloat32 : DType::kFloat64, f.name, axes, inputs);
    } else if (f.tensor_class == io::TensorClass::kFlag) {
      inputs.add_values(f.name, axes, io::read_flags(tensor));
    } else {
      const std::vector<int64_t> values = io::read_integers(tensor);
      const int64_t width = matrix ? tensor.shape.back() : 1;
      std::byte* const to = inputs.add(f.name, axes, DType::kInt64, matrix ? job.tokens : tensor.elements(), width);
      std::ranges::copy(values, reinterpret_cast<int64_t*>(to));
    }
  }
  if (config.has_sets()) check_sets(config, paths, inputs);
  read_teacher(config, paths, inputs);
}

void read_logits(const Config& config, const TensorPaths& paths, const io::TensorHandle& targets, Inputs& inputs) {
  Job& job = inputs.job;
  const io::TensorHandle logits = open_floats(paths, "logits", 2, kBatched, inputs);
  check_targets(targets, logits, "logits");
  job.tokens = logits.tensor->rows();
  job.vocab_size = job.stored_entries = logits.tensor->shape.back();
  job.sequences = sequences_of(config, logits);
  job.dtype = config.is_set("model.dtype") ? config.model.dtype : io::natural_dtype(*logits.tensor);
  check_shape(config, job);
  add_floats(logits, job.dtype, "logits", "NV", inputs);
}

void read_model(const Config& config, const TensorPaths& paths, const io::TensorHandle& targets, HeadFiles heads,
                Inputs& inputs) {
  Job& job = inputs.job;
  if (config.model.packing) {
    throw Error(config.place_of("model.packing") + " packs a seeded head, but --lm-head was given");
  }
  const bool packed = paths.has("lengths");
  const io::TensorHandle hidden = open_floats(paths, "hidden", 2, !packed, inputs);
  const std::string spec = paths["lm_head"];
  const bool gguf = heads == HeadFiles::kSafetensorsOrGguf && is_gguf(io::split_spec(spec).path);
  io::TensorHandle weight;
  if (!gguf) weight = open_floats(paths, "lm_head", 2, false, inputs);
  check_targets(targets, hidden, "hidden");
  job.tokens = hidden.tensor->rows();
  job.hidden_size = hidden.tensor->shape.back();
  job.sequences = packed ? 1 : sequences_of(config, hidden);
  std::optional<DType> configured;
  if (config.is_set("model.dtype")) configured = config.model.dtype;
  if (gguf) {
    job.head = inputs.files.head("--lm-head", spec, "lm_head", job.hidden_size);
    if (config.is_set("model.layout") && config.model.layout != job.layout) {
      throw Error(config.place_of("model.layout") + " is " + io::name_of(config.model.layout) +
                  ", but the head of a GGUF file is " + io::name_of(job.layout));
    }
    job.vocab_size = job.stored_entries = job.head->stored_entries();
    job.dtype = configured.value_or(io::natural_dtype(*hidden.tensor));
  } else {
    job.layout = layout_of(config, weight, hidden);
    job.vocab_size = job.stored_entries = weight.tensor->shape[job.layout == HeadLayout::kVocabHidden ? 0 : 1];
    job.dtype = dtype_of(configured, "model.dtype", hidden, weight);
  }
  check_shape(config, job);
  add_floats(hidden, job.dtype, "hidden", "NH", inputs);
  const char* const axes = job.layout == HeadLayout::kVocabHidden ? "VH" : "HV";
  if (!gguf) add_floats(weight, job.dtype, "lm_head", axes, inputs);
  add_bias(config, paths, "bias", "model.bias", config.model.bias, job.dtype, inputs);
  add_lora(config, paths, inputs);
}

void check_level(const Config& config, const TensorPaths& paths) {
  const bool logits = paths.has("logits");
  if (!paths.has("hidden") && !logits) throw Error("--targets requires --hidden and --lm-head, or --logits");
  if (config.level == io::Level::kLogits) {
    if (!logits) throw Error("--hidden was given, but level logits takes --logits");
    if (paths.has("lengths")) throw Error("--lengths was given, but logits are [B, T, V]: set batch_size");
  } else if (!paths.has("hidden")) {
    throw Error("--logits was given, but level fused takes --hidden and --lm-head: set level=logits");
  }
}

io::TensorClass class_of(const Role& role) {
  if (role.takes(DType::kUInt8)) return io::TensorClass::kFlag;
  return role.takes(DType::kInt64) ? io::TensorClass::kInteger : io::TensorClass::kFloat;
}

// Returns the help of a tensor, made from the lists: its meaning with the shape before the first semicolon.
// For `labels`: "1: desirable, 0: undesirable [B], bool or uint8".
std::string help_of(const Field& field) {
  const std::string shape = field.role.shape, in_brackets = shape.starts_with('[') ? " " : ", ";
  const bool is_flag = class_of(field.role) == io::TensorClass::kFlag;
  const std::string meaning = field.meaning;
  const size_t semicolon = std::min(meaning.find("; "), meaning.size());
  return meaning.substr(0, semicolon) + in_brackets + shape + (is_flag ? ", bool or uint8" : "") +
         meaning.substr(semicolon);
}

// Returns a flag for each vector, except targets, that the library's lists of tasks have.
std::vector<TensorFlag> flags_of_tasks() {
  std::vector<TensorFlag> flags;
  io::for_each_task([&]<class Task> {
    const auto add = [&]<class T>(const Field& field, const T&) {
      const std::string_view name = field.name;
      const bool is_vector = std::is_same_v<T, ConstTensor> || std::is_same_v<T, std::span<const uint8_t>>;
      if (!is_vector || name == "targets" || name == "chosen_ids") return;
      auto flag = std::ranges::find(flags, name, &TensorFlag::name);
      if (flag == flags.end()) {
        flags.push_back({.name = field.name, .uses = {}, .tensor_class = class_of(field.role)});
        flag = flags.end() - 1;
      }
      const std::string help = help_of(field);
      const auto same = std::ranges::find(flag->uses, help, &TensorUse::help);
      if (same != flag->uses.end()) return same->tasks.push_back(Task::kName);
      flag->uses.push_back({help, {Task::kName}, field.role.shape});
    };
    visit_fields(TensorsOf<Task>(), add, Task());
  });
  return flags;
}

std::vector<TensorFlag> all_flags() {
  using Class = io::TensorClass;
  std::vector<std::string> sets;
  io::for_each_task([&]<class Task> {
    if (io::kHasSets<Task>) sets.push_back(Task::kName);
  });
  const std::vector<std::string> soft = {SoftCrossEntropy::kName}, taught = {Distillation::kName};
  std::vector<TensorFlag> flags = {
      {"hidden", {{"hidden states [N, H] or [B, T, H], safetensors"}}},
      {"lm_head", {{"LM head [V, H] or [H, V]"}}},
      {"targets", {{"token ids [N] or [B, T], int32 or int64"}}},
      {"lengths", {{"lengths of packed sequences; hidden is then [N, H], and their sum is N"}}},
      {"bias", {{"bias of the head [V]"}}},
      {.name = "lora",
       .uses = {{"LoRA of the head as PEFT saves it: its folder, or the safetensors file in it"}},
       .names = "FILE[:MODULE]"},
      {"vocab_ids",
       {{"the entries of the head to use [K], int32 or int64; token ids are then positions in this list"}}},
      {"logits", {{"finished logits [N, V] or [B, T, V], at level logits; instead of --hidden and --lm-head"}}},
      {"teacher_hidden", {{"the teacher's hidden states [N, H of the teacher]", taught}}},
      {"teacher_lm_head", {{"the teacher's LM head, in the student's layout", taught}}},
      {"teacher_bias", {{"bias of the teacher's head [V]", taught}}},
      {"set_ids", {{"token ids [N, K]", sets, "[N, K]"}}, Class::kInteger},
      {"set_counts", {{"how many of its K ids each token uses [N]; all by default", sets, "[N]"}}, Class::kInteger},
      {"set_values",
       {{"one number per id [N, K]: its weight, the teacher's log-probability or dL/dlogp, depending on the task", sets,
         "[N, K]"}}},
      {"soft_rows", {{"a weight for each vocabulary entry [N, V], instead of sets", soft, "[N, V]"}}}};
  std::ranges::copy(flags_of_tasks(), std::back_inserter(flags));
  return flags;
}

}  // namespace

const std::vector<TensorFlag>& tensor_flags() {
  static const std::vector<TensorFlag> flags = all_flags();
  return flags;
}

std::string flag_of(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

std::string TensorFlag::help_text() const {
  std::vector<std::string> texts;
  for (const TensorUse& use : uses) texts.push_back((of_model() ? "" : joined(use.tasks) + ": ") + use.help);
  return joined(texts, "; ");
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
  for (const TensorFlag& f : tensor_flags()) add_input_files(flag_of(f.name), (*this)[f.name], files);
  return files;
}

std::string TensorPaths::with_flag(const std::string& message) const {
  if (!given()) return message;
  // Names in the library's messages that differ from the flags' names.
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"chosen_ids", "targets"},
                                                                             {"weight", "lm_head"},
                                                                             {"teacher.weight", "teacher_lm_head"},
                                                                             {"offsets", "lengths"},
                                                                             {"lora_a", "lora"},
                                                                             {"lora_b", "lora"},
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
  if (std::ranges::count(tensor_flags(), name, &TensorFlag::name) == 0) return message;
  return flag_of(name) + (has(name) ? " " + (*this)[name] : "") + ": " + message;
}

Inputs read_inputs(const Config& config, const TensorPaths& paths, SeededValues values, HeadFiles heads) {
  if (!paths.given()) return make_seeded_inputs(config, values);
  if (config.ignored_fraction != 0) {
    throw Error(config.place_of("ignored_fraction") + " is for seeded targets, but --targets was given");
  }
  if (config.token_weights && paths.has("token_weights")) {
    throw Error(config.place_of("token_weights") + " draws weights, but --token-weights was given");
  }
  check_level(config, paths);
  Inputs inputs;
  const io::TensorHandle targets = open(paths, "targets", io::TensorClass::kInteger, 1, kBatched, inputs);
  if (config.level == io::Level::kLogits) {
    read_logits(config, paths, targets, inputs);
  } else {
    read_model(config, paths, targets, heads, inputs);
  }
  inputs.choose_entries(config, paths["vocab_ids"]);
  inputs.add_targets(io::read_integers(*targets.tensor), targets.tensor->dtype == "I64");
  add_sequences(config, paths, inputs);
  read_batch(config, paths, inputs);
  inputs.add_seeded_vectors(config, config.token_weights);
  inputs.files.check();
  return inputs;
}

}  // namespace logitless::cli
