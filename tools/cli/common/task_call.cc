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
using io::Task;

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
  set_options(job);
  set_batches(job);
  set_distributions(job);
  set_outputs(job);
}

void TaskRun::set_options(const Job& job) {
  cross_entropy = config.cross_entropy;
  cross_entropy.token.temperature = config.temperature.low;
  cross_entropy.token.temperatures = span_of<double>(job, TensorId::kTemperatures);
  cross_entropy.class_weights = span_of<float>(job, TensorId::kClassWeights);
  policy = config.policy.options;
  preference = config.preference;
  kto = config.kto.options;
  distillation = config.distillation;
  set_distillation = config.set_distillation;
  soft_cross_entropy = config.soft_cross_entropy;
  id_logps = config.id_logps;

  const auto set_common = [&](auto& options) {
    options.token = cross_entropy.token;
    if constexpr (requires { options.loss_scale; }) options.loss_scale = cross_entropy.loss_scale;
    if constexpr (requires { options.want_entropy; }) options.want_entropy = cross_entropy.want_entropy;
  };
  const auto set_all = [&](auto&... options) { (set_common(options), ...); };
  set_all(policy, preference, kto, distillation, set_distillation, soft_cross_entropy, id_logps);
}

void TaskRun::set_batches(const Job& job) {
  policy.chosen_ids = targets;
  policy.advantages = vector_of(job, TensorId::kAdvantages);
  policy.old_logps = vector_of(job, TensorId::kOldLogps);
  policy.ref_logps = vector_of(job, TensorId::kRefLogps);
  policy.sampling_logps = vector_of(job, TensorId::kSamplingLogps);
  policy.teacher_logps = vector_of(job, TensorId::kTeacherLogps);
  policy.scores = vector_of(job, TensorId::kScores);
  policy.mask = span_of<uint8_t>(job, TensorId::kMask);
  preference.targets = targets;
  preference.ref_logps = vector_of(job, TensorId::kRefLogps);
  kto.targets = targets;
  kto.labels = span_of<uint8_t>(job, TensorId::kLabels);
  kto.ref_logps = preference.ref_logps;
  kto.kl_logps = vector_of(job, TensorId::kKlLogps);
  kto.kl_ref_logps = vector_of(job, TensorId::kKlRefLogps);
  kto.sequence_weights = vector_of(job, TensorId::kSequenceWeights);
  kto.reward_targets = vector_of(job, TensorId::kRewardTargets);
}

void TaskRun::set_distributions(const Job& job) {
  cross_entropy.targets = distillation.targets = set_distillation.targets = targets;
  if (job.has(TensorId::kTeacherWeight)) {
    teacher.hidden =
        HiddenStates(ConstMatrix(job[TensorId::kTeacherHidden].data, job.teacher_dtype, job.tokens, job.teacher_size),
                     job.sequences);
    teacher.hidden.offsets = hidden.offsets;
    teacher.head = head_of(job, TensorId::kTeacherWeight, TensorId::kTeacherBias, job.teacher_dtype, job.teacher_size,
                           config.teacher.softcap);
    teacher.round_logits_to = distillation.teacher_round_logits_to;
    distillation.teacher = logits_of(teacher);
  }
  if (job.has(TensorId::kSoftRows)) {
    const DType dtype = job.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    // Of the whole vocabulary, where a rank has a part of the head.
    const int64_t width = job[TensorId::kSoftRows].count(size_of(dtype)) / std::max<int64_t>(1, job.tokens);
    SoftTargets& soft_targets = soft_cross_entropy.targets;
    soft_targets = SoftTargets(ConstMatrix(job[TensorId::kSoftRows].data, dtype, job.tokens, width));
    soft_targets.mask = span_of<uint8_t>(job, TensorId::kMask);
  }
  if (!job.has(TensorId::kSetIds)) return;
  const int64_t entries = job[TensorId::kSetIds].count(sizeof(int64_t)),
                width = entries / std::max<int64_t>(1, job.tokens);
  const IdSets sets = IdSets::padded(Targets(job[TensorId::kSetIds].as<int64_t>(), job.tokens, width),
                                     span_of<int64_t>(job, TensorId::kSetCounts));
  set_values = span_of<double>(job, TensorId::kSetValues);
  id_logps.sets = sets;
  set_distillation.teacher = {sets, vector_of(job, TensorId::kSetValues), {}};
  soft_cross_entropy.targets = SoftTargets(sets, set_distillation.teacher.logps);
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
  const auto of = [&](const auto& task) {
    return result_of(dense ? dense::run(context, source(), task, out) : logitless::run(context, source(), task, out));
  };
  switch (config.task) {
    case Task::kPolicyLoss:
      return of(policy);
    case Task::kPreferenceLoss:
      return of(preference);
    case Task::kKtoLoss:
      return of(kto);
    case Task::kDistillation:
      return of(distillation);
    case Task::kSetDistillation:
      return of(set_distillation);
    case Task::kSoftCrossEntropy:
      return of(soft_cross_entropy);
    case Task::kIdLogps:
      return run_id_logps(context, out, dense);
    case Task::kCrossEntropy:
      break;
  }
  return of(cross_entropy);
}

TaskResult TaskRun::run_id_logps(const Context& context, const Gradients& out, bool dense) const {
  IdLogps task = id_logps;
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
  const std::span<const int64_t> counts = id_logps.sets.counts;
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

ProfileShape profile_shape(const io::Config& config, const Job& job) {
  const bool fused = config.level == io::Level::kFused;
  return {job.tokens, fused ? job.hidden_size : 0, job.vocab_size, job.dtype, job.layout == HeadLayout::kHiddenVocab};
}

Profile::Profile(const std::string& path) : path_(io::profile_path(path)) {
  if (!path_.empty()) entries_ = io::read_profile(path_, path.empty() ? "LOGITLESS_PROFILE" : "--profile");
}

std::string Profile::apply(const Job& shape, io::Config& config) const {
  if (path_.empty()) return "";
  const std::string name = "profile " + path_ + ": ";
  const ContextOptions before = context_options_of(config);
  const auto [after, why_not] = io::use_profile(entries_, profile_shape(config, shape), before);
  if (!why_not.empty()) return name + "not used: " + why_not;
  std::string used;
  const auto set = [&](const std::string& key, const std::string& value) {
    io::set_key(config, path_, key + "=" + value);
    used += (used.empty() ? "" : " ") + key + "=" + value;
  };
  if (after.plan != before.plan) set("kernel.plan", name_of(after.plan));
  const auto rows = config.level == io::Level::kFused ? &ContextOptions::row_tile : &ContextOptions::row_block;
  if (after.*rows != before.*rows) set("kernel.row_tile", std::to_string(after.*rows));
  if (after.vocab_tile != before.vocab_tile) set("kernel.vocab_tile", std::to_string(after.vocab_tile));
  // Half a profile is a combination that nobody measured.
  std::string kept;
  if (before.*rows != 0) kept += "; kernel.row_tile=" + std::to_string(before.*rows) + " is the config's and stays";
  if (before.vocab_tile != 0)
    kept += "; kernel.vocab_tile=" + std::to_string(before.vocab_tile) + " is the config's and stays";
  return name + (used.empty() ? "leaves all as it is" : used) + kept;
}

std::vector<InputFile> input_files(const TensorPaths& tensors, const Profile& profile,
                                   const std::vector<std::string>& configs) {
  std::vector<InputFile> files = tensors.files();
  files.push_back({"the profile", profile.path()});
  for (const std::string& config : configs) files.push_back({"the config", config});
  return files;
}

}  // namespace cli
}  // namespace logitless
