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

// An empty vector counts as not given.
ConstTensor vector_of(const Job& job, std::string_view name) {
  const ConstTensor& view = job[name].view;
  return view.count() == 0 ? ConstTensor() : view;
}

// Returns rows [N, X] as [B, T, X] if there are several sequences of equal length.
template <class Void>
BasicTensor<Void> in_sequences(const BasicTensor<Void>& rows, int64_t sequences) {
  if (!rows.given() || sequences <= 1) return rows;
  return {rows.data, rows.dtype, {sequences, rows.sizes[0] / sequences, rows.sizes[1]}};
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

// Returns [V, H], whatever the layout.
template <class Void>
BasicTensor<Void> as_weight(const BasicTensor<Void>& matrix, const Job& job) {
  return job.layout == HeadLayout::kHiddenVocab ? transposed(matrix) : matrix;
}

LmHead head_of(const Job& job, const char* weight, const char* bias, double softcap) {
  return {.weight = as_weight(job[weight].view, job),
          .bias = job[bias].view,
          .softcap = softcap,
          .vocab_ids = job["vocab_ids"].values<int64_t>()};
}

LmHead model_head(const io::Config& config, const Job& job) {
  LmHead head = head_of(job, "lm_head", "bias", config.model.softcap);
  if (job.head) {
    // The bias and softcap of a packed or GGUF head apply unless a flag or the config overrides them.
    const LmHead given = head;
    head = *job.head;
    const bool takes_bias = config.model.bias || !config.is_set("model.bias");
    if (given.bias.given() || !takes_bias) head.bias = given.bias;
    if (config.is_set("model.softcap")) head.softcap = given.softcap;
    head.vocab_ids = given.vocab_ids;
  }
  if (job.has("lora_a")) head.lora = {job["lora_a"].view, job["lora_b"].view, job.lora_scale, {}};
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
  const std::span<const int64_t> offsets = job["offsets"].values<int64_t>();
  if (config.level == Level::kFused) {
    const ConstTensor& hidden = job["hidden"].view;
    source =
        Logits::of(offsets.empty() ? in_sequences(hidden, job.sequences) : hidden, model_head(config, job), offsets);
  } else {
    const bool in_place = config.in_place && job.has("d_logits");
    source.finished = in_sequences(job[in_place ? "d_logits" : "logits"].view, job.sequences);
    if (in_place) kept_logits_ = job["logits"].as_bytes();
  }
  const ConstTensor& ids = job["targets"].view;
  targets = ids.dtype == DType::kInt64 ? Targets(static_cast<const int64_t*>(ids.data), job.tokens)
                                       : Targets(static_cast<const int32_t*>(ids.data), job.tokens);
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
  task.token.temperatures = job["temperatures"].values<double>();
  if constexpr (requires { task.loss_scale; }) task.loss_scale = common.loss_scale;
  if constexpr (requires { task.want_entropy; }) task.want_entropy = common.want_entropy;
  if constexpr (requires { task.class_weights; }) task.class_weights = job["class_weights"].values<float>();
  const auto set = [&]<class T>(const Field& field, T& to) {
    const std::string_view name = field.name;
    if constexpr (std::is_same_v<T, ConstTensor>) to = name == "targets" ? ConstTensor(targets) : vector_of(job, name);
    if constexpr (std::is_same_v<T, std::span<const uint8_t>>) to = job[name].values<uint8_t>();
  };
  visit_fields(TensorsOf<Task>(), set, task);
  if constexpr (requires { task.chosen_ids; }) task.chosen_ids = targets;
}

void TaskRun::set_distributions(const Job& job) {
  if (job.has("teacher_lm_head")) {
    const ConstTensor& hidden = job["teacher_hidden"].view;
    std::get<Distillation>(tasks).teacher =
        Logits::of(source.offsets.empty() ? in_sequences(hidden, job.sequences) : hidden,
                   head_of(job, "teacher_lm_head", "teacher_bias", config.teacher.softcap), source.offsets);
  }
  if (job.has("soft_rows")) {
    SoftTargets& soft_targets = std::get<SoftCrossEntropy>(tasks).targets;
    soft_targets = SoftTargets(job["soft_rows"].view);
    soft_targets.mask = job["mask"].values<uint8_t>();
  }
  if (!job.has("set_ids")) return;
  const IdSets sets = IdSets::padded(job["set_ids"].view, job["set_counts"].values<int64_t>());
  set_values = job["set_values"].values<double>();
  const ConstTensor values = vector_of(job, "set_values");
  std::get<IdLogps>(tasks).sets = sets;
  std::get<SetDistillation>(tasks).teacher = {sets, values, {}};
  std::get<SoftCrossEntropy>(tasks).targets = SoftTargets(sets, values);
}

void TaskRun::set_outputs(const Job& job) {
  gradients.backward = config.backward;
  const int64_t sequences = source.offsets.empty() ? job.sequences : 1;
  gradients.d_hidden = in_sequences(job["d_hidden"].output(), sequences);
  gradients.d_weight = as_weight(job["d_weight"].output(), job);
  gradients.d_bias = job["d_bias"].output();
  gradients.d_lora_a = job["d_lora_a"].output();
  gradients.d_lora_b = job["d_lora_b"].output();
  gradients.d_logits = in_sequences(job["d_logits"].output(), sequences);
}

void TaskRun::reset() const {
  if (!kept_logits_.empty()) std::memcpy(gradients.d_logits.data, kept_logits_.data(), kept_logits_.size());
}

TaskResult TaskRun::run(const Context& context, bool forward_only, bool dense) const {
  if (forward_only && config.top_k > 0) return statistics(context);
  const Gradients out = forward_only ? Gradients() : gradients;
  TaskResult result;
  io::for_each_task([&]<class Task> {
    if (config.runs<Task>()) result = run_task(context, of<Task>(), out, dense);
  });
  return result;
}

TaskResult TaskRun::run_task(const Context& context, const auto& task, const Gradients& out, bool dense) const {
  return result_of(dense ? dense::run(context, source, task, out) : logitless::run(context, source, task, out));
}

TaskResult TaskRun::run_task(const Context& context, const IdLogps& given, const Gradients& out, bool dense) const {
  IdLogps task = given;
  std::optional<dense::Projection> all;
  if (dense) all.emplace(context, source, out, &task.token.round_logits_to);
  const Context& used = all ? all->context() : context;
  const Logits logits = all ? all->logits() : source;
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
  const size_t width = counts.empty() ? 0 : logps.size() / counts.size();
  for (size_t row = 0; row < counts.size(); ++row) {
    for (size_t e = row * width; e < row * width + static_cast<size_t>(counts[row]); ++e) {
      result.loss += set_values[e] * logps[e];
    }
  }
  result.metrics = {{"tokens", static_cast<double>(std::ssize(counts) - std::ranges::count(counts, 0))}};
  result.per_token_logps = std::move(logps);
  return result;
}

TaskResult TaskRun::statistics(const Context& context) const {
  TokenStatisticsResult ran =
      logitless::run(context, source,
                     TokenStatistics{.targets = targets, .token = token_options(), .request = {.top_k = config.top_k}});
  TaskResult out;
  out.plan = std::move(ran.plan);
  out.per_token_logps = std::move(ran.stats.logp);
  out.top_ids = std::move(ran.stats.top_ids);
  out.top_logps = std::move(ran.stats.top_logps);
  return out;
}

std::vector<double> TaskRun::token_logps(const Context& context) const {
  return logitless::run(context, source, TokenStatistics{.targets = targets, .token = token_options()}).stats.logp;
}

ContextOptions context_options_of(const io::Config& config) {
  ContextOptions options = config.kernel;
  options.row_block = options.row_tile;
  return options;
}

std::vector<InputFile> input_files(const TensorPaths& tensors, const std::vector<std::string>& configs) {
  std::vector<InputFile> files = tensors.files();
  for (const std::string& config : configs) files.push_back({"the config", config});
  return files;
}

}  // namespace cli
}  // namespace logitless
