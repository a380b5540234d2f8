// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/task_call.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "core/fields.h"
#include "dense/dense.h"

namespace logitless {

namespace cli {
namespace {

using io::Level;

ConstVector vector_of(const Job& job, TensorId id) {
  if (job[id].bytes == 0) return {};
  return ConstVector(job[id].as<double>(), job[id].count(sizeof(double)));
}

template <class T>
std::span<const T> span_of(const Job& job, TensorId id) {
  return {job[id].as<T>(), job[id].bytes / sizeof(T)};
}

template <class Result>
TaskResult result_of(Result result) {
  TaskResult out;
  out.loss = result.loss;
  out.plan = std::move(result.plan);
  const auto add = [&](const Field& field, auto value) {
    out.metrics.emplace_back(field.name, static_cast<double>(value));
  };
  visit_fields(FieldsOf<decltype(result.metrics)>(), add, result.metrics);
  if constexpr (requires { result.per_token_loss; }) out.per_token_loss = std::move(result.per_token_loss);
  if constexpr (requires { result.per_token_logps; }) out.per_token_logps = std::move(result.per_token_logps);
  return out;
}

HeadMatrices head_of(const Job& job, TensorId weight, TensorId bias, DType dtype, int64_t hidden_size, double softcap) {
  const bool tall = job.layout == HeadLayout::kVocabHidden;
  const int64_t entries = job.stored_entries;
  HeadMatrices head(ConstMatrix(job[weight].data, dtype, tall ? entries : hidden_size, tall ? hidden_size : entries),
                    job.layout);
  if (job.has(bias)) head.bias = ConstVector(job[bias].data, dtype, entries);
  head.softcap = softcap;
  head.ids = span_of<int64_t>(job, TensorId::kVocabIds);
  return head;
}

}  // namespace

double TaskResult::metric(std::string_view name) const {
  for (const auto& [key, value] : metrics) {
    if (key == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

TaskRun::TaskRun(const io::Config& config_, const Job& job) : config(config_) {
  if (config.level == Level::kFused) {
    hidden =
        HiddenStates(ConstMatrix(job[TensorId::kHidden].data, job.dtype, job.tokens, job.hidden_size), job.sequences);
    hidden.offsets = span_of<int64_t>(job, TensorId::kOffsets);
    head = head_of(job, TensorId::kWeight, TensorId::kBias, job.dtype, job.hidden_size, config.model.softcap);
    if (job.head) {
      // Its own bias and softcap count where nothing else is said.
      const bool takes_bias = config.model.bias || !config.is_set("model.bias");
      if (takes_bias && !head.bias.data) head.bias = job.head->bias;
      if (!config.is_set("model.softcap")) head.softcap = job.head->softcap;
      head.weight = job.head->weight;
      head.packed = job.head->packed;
      head.layout = job.head->layout;
    }
    if (job.has(TensorId::kLoraA)) {
      head.lora = {ConstMatrix(job[TensorId::kLoraA].data, job.lora_dtype, job.lora_rank, job.hidden_size),
                   ConstMatrix(job[TensorId::kLoraB].data, job.lora_dtype, job.stored_entries, job.lora_rank),
                   job.lora_scale};
    }
  } else {
    const bool in_place = config.kernel.in_place && job.has(TensorId::kDLogits);
    logits = FinishedLogits(job[in_place ? TensorId::kDLogits : TensorId::kLogits].data, job.dtype, job.sequences,
                            job.tokens / std::max<int64_t>(1, job.sequences), job.vocab_size);
    source_logits_ = in_place ? job[TensorId::kLogits].data : nullptr;
    logits_bytes_ = job[TensorId::kLogits].bytes;
  }
  const TensorBytes& entries = job[TensorId::kTargets];
  targets = job.wide_targets ? Targets(entries.as<int64_t>(), job.tokens) : Targets(entries.as<int32_t>(), job.tokens);
  io::for_each_task([&]<class Task> { set_task(job, std::get<Task>(tasks)); });
  set_distributions(job);
  set_outputs(job);
}

void TaskRun::set_task(const Job& job, auto& task) {
  using Task = std::remove_cvref_t<decltype(task)>;
  const CrossEntropy& common = config.of<CrossEntropy>();
  task = config.of<Task>();
  task.token = common.token;
  task.token.temperature = config.temperature.low;
  task.token.temperatures = span_of<double>(job, TensorId::kTemperatures);
  if constexpr (requires { task.loss_scale; }) task.loss_scale = common.loss_scale;
  if constexpr (requires { task.want_entropy; }) task.want_entropy = common.want_entropy;
  if constexpr (requires { task.class_weights; }) task.class_weights = span_of<float>(job, TensorId::kClassWeights);
  // A tensor is that of the flag with its name.
  const auto set = [&]<class T>(const Field& field, T& to) {
    for (const TensorFlag& flag : tensor_flags()) {
      if (flag.conventional_name() != field.name) continue;
      if constexpr (std::is_same_v<T, ConstTensor>) {
        to = flag.id == TensorId::kTargets ? targets : ConstTensor(vector_of(job, flag.id));
      }
      if constexpr (std::is_same_v<T, std::span<const uint8_t>>) to = span_of<uint8_t>(job, flag.id);
    }
  };
  visit_fields(TensorsOf<Task>(), set, task);
  if constexpr (requires { task.chosen_ids; }) task.chosen_ids = targets;
}

void TaskRun::set_distributions(const Job& job) {
  if (job.has(TensorId::kTeacherWeight)) {
    teacher.hidden =
        HiddenStates(ConstMatrix(job[TensorId::kTeacherHidden].data, job.teacher_dtype, job.tokens, job.teacher_size),
                     job.sequences);
    teacher.hidden.offsets = hidden.offsets;
    teacher.head = head_of(job, TensorId::kTeacherWeight, TensorId::kTeacherBias, job.teacher_dtype, job.teacher_size,
                           config.teacher.softcap);
    auto& distillation = std::get<Distillation>(tasks);
    teacher.round_logits_to = distillation.teacher_round_logits_to;
    distillation.teacher = logits_of(teacher);
  }
  if (job.has(TensorId::kSoftRows)) {
    const DType dtype = job.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    // Of the whole vocabulary, where a rank has a part of the head.
    const int64_t width = job[TensorId::kSoftRows].count(size_of(dtype)) / std::max<int64_t>(1, job.tokens);
    SoftTargets& soft_targets = std::get<SoftCrossEntropy>(tasks).targets;
    soft_targets = SoftTargets(ConstMatrix(job[TensorId::kSoftRows].data, dtype, job.tokens, width));
    soft_targets.mask = span_of<uint8_t>(job, TensorId::kMask);
  }
  if (!job.has(TensorId::kSetIds)) return;
  const int64_t entries = job[TensorId::kSetIds].count(sizeof(int64_t)),
                width = entries / std::max<int64_t>(1, job.tokens);
  const IdSets sets = IdSets::padded(Targets(job[TensorId::kSetIds].as<int64_t>(), job.tokens, width),
                                     span_of<int64_t>(job, TensorId::kSetCounts));
  set_values = span_of<double>(job, TensorId::kSetValues);
  const ConstTensor values = vector_of(job, TensorId::kSetValues);
  std::get<IdLogps>(tasks).sets = sets;
  std::get<SetDistillation>(tasks).teacher = {sets, values, {}};
  std::get<SoftCrossEntropy>(tasks).targets = SoftTargets(sets, values);
}

void TaskRun::set_outputs(const Job& job) {
  gradients.backward = config.backward;
  if (job.has(TensorId::kDHidden)) {
    gradients.d_hidden = Matrix(job[TensorId::kDHidden].writable(), job.gradient_dtype, job.tokens, job.hidden_size);
  }
  if (job.has(TensorId::kDWeight)) {
    const bool tall = head.layout == HeadLayout::kVocabHidden;
    gradients.d_weight = Matrix(job[TensorId::kDWeight].writable(), job.gradient_dtype,
                                tall ? job.vocab_size : job.hidden_size, tall ? job.hidden_size : job.vocab_size);
  }
  if (job.has(TensorId::kDBias)) {
    gradients.d_bias = Vector(job[TensorId::kDBias].writable(), job.gradient_dtype, job.vocab_size);
  }
  if (job.has(TensorId::kDLoraA)) {
    gradients.d_lora_a = Matrix(job[TensorId::kDLoraA].writable(), job.gradient_dtype, job.lora_rank, job.hidden_size);
  }
  if (job.has(TensorId::kDLoraB)) {
    gradients.d_lora_b = Matrix(job[TensorId::kDLoraB].writable(), job.gradient_dtype, job.vocab_size, job.lora_rank);
  }
  if (job.has(TensorId::kDLogits)) {
    gradients.d_logits =
        LogitsGradient(job[TensorId::kDLogits].writable(), job.gradient_dtype, logits.batch, logits.time, logits.vocab);
  }
}

void TaskRun::reset() const {
  if (source_logits_) std::memcpy(gradients.d_logits.data, source_logits_, logits_bytes_);
}

TaskResult TaskRun::run(const Context& context, bool forward_only, bool dense) const {
  if (forward_only && config.top_k > 0) return statistics(context);
  const Gradients out = forward_only ? Gradients() : gradients_of(gradients, hidden, head);
  TaskResult result;
  io::for_each_task([&]<class Task> {
    if (config.runs<Task>()) result = run_task(context, of<Task>(), out, dense);
  });
  return result;
}

TaskResult TaskRun::run_task(const Context& context, const auto& task, const Gradients& out, bool dense) const {
  return result_of(dense ? dense::run(context, source(), task, out) : logitless::run(context, source(), task, out));
}

TaskResult TaskRun::run_task(const Context& context, const IdLogps& given, const Gradients& out, bool dense) const {
  IdLogps task = given;
  std::optional<dense::Projection> all;
  if (dense) all.emplace(context, source(), out, &task.token.round_logits_to);
  const Context& used = all ? all->context() : context;
  const Logits logits = all ? all->logits() : source();
  Forward<IdLogps> forward = logitless::forward(used, logits, task);
  TaskResult result;
  result.plan = out.any() ? logitless::backward(used, logits, task, forward, set_values, all ? all->d_logits() : out)
                          : std::move(forward.result.plan);
  if (all) {
    all->backward();
    all->complete(result.plan);
  }
  const std::span<const int64_t> counts = task.sets.counts;
  std::vector<double>& logps = forward.result.logps;
  const size_t width = logps.size() / static_cast<size_t>(std::max<int64_t>(1, hidden.tokens()));
  for (size_t row = 0; row < counts.size(); ++row) {
    for (size_t e = row * width; e < row * width + static_cast<size_t>(counts[row]); ++e) {
      result.loss += set_values[e] * logps[e];
    }
  }
  result.metrics = {{"tokens", static_cast<double>(hidden.tokens() - std::ranges::count(counts, 0))}};
  result.per_token_logps = std::move(logps);
  return result;
}

TaskResult TaskRun::statistics(const Context& context) const {
  TokenStatisticsResult ran =
      logitless::run(context, source(),
                     TokenStatistics{.targets = targets, .token = token_options(), .request = {.top_k = config.top_k}});
  TaskResult out;
  out.plan = std::move(ran.plan);
  out.per_token_logps = std::move(ran.stats.logp);
  out.top_ids = std::move(ran.stats.top_ids);
  out.top_logps = std::move(ran.stats.top_logps);
  return out;
}

std::vector<double> TaskRun::token_logps(const Context& context) const {
  return logitless::run(context, source(), TokenStatistics{.targets = targets, .token = token_options()}).stats.logp;
}

ContextOptions context_options_of(const io::Config& config) {
  ContextOptions options;
  options.threads = config.threads;
  if (config.kernel.workspace_bytes) options.workspace_bytes = *config.kernel.workspace_bytes;
  options.plan = config.kernel.plan;
  options.row_tile = options.row_block = config.kernel.row_tile;
  options.vocab_tile = config.kernel.vocab_tile;
  options.gemm_backend = config.kernel.gemm_backend;
  options.gradient_precision = config.kernel.gradient_precision;
  options.simd_target = config.kernel.simd_target;
  return options;
}

std::vector<InputFile> input_files(const TensorPaths& tensors, const std::vector<std::string>& configs) {
  std::vector<InputFile> files = tensors.files();
  for (const std::string& config : configs) files.push_back({"the config", config});
  return files;
}

}  // namespace cli
}  // namespace logitless
