// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "cli/child_process.h"
#include "cli/compare_report.h"
#include "cli/process_memory.h"
#include "cli/progress.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

// The gradients and losses that one contender writes.
struct Outputs {
  std::vector<SharedMemory> memory;
  Region d_hidden, d_weight, d_bias, losses;
};

uint64_t output_bytes(const Outputs& outputs) {
  uint64_t sum = 0;
  for (const SharedMemory& memory : outputs.memory) sum += memory.region().bytes;
  return sum;
}

Outputs make_outputs(const io::Config& config, const Job& job) {
  Outputs outputs;
  const size_t element = size_of(job.gradient_dtype);
  const auto add = [&](const char* name, int64_t rows, int64_t cols, size_t element_bytes) {
    outputs.memory.emplace_back(name, tensor_bytes(name, rows, cols, element_bytes));
    return outputs.memory.back().region();
  };
  if (config.gradients.d_hidden) outputs.d_hidden = add("d_hidden", job.tokens, job.hidden_size, element);
  if (config.gradients.d_weight) outputs.d_weight = add("d_weight", job.hidden_size, job.vocab_size, element);
  if (config.gradients.d_bias && job.bias) outputs.d_bias = add("d_bias", job.vocab_size, 1, element);
  if (config.reduction == Reduction::kNone) outputs.losses = add("losses", job.tokens, 1, sizeof(double));
  return outputs;
}

// The part of a Job that a config says and the inputs do not.
void fill_options(const io::Config& config, Job& job) {
  const ContextOptions context = context_options_of(config);
  job.parent_process = getpid();
  job.threads = context.threads;
  job.workspace_bytes = context.workspace_bytes;
  job.plan = context.plan;
  job.row_tile = context.row_tile;
  job.vocab_tile = context.vocab_tile;
  copy_text(context.gemm_backend.c_str(), job.gemm_backend);
  copy_text(context.simd_target.c_str(), job.simd_target);
  job.ignore_index = config.ignore_index;
  job.reduction = config.reduction;
  job.label_smoothing = config.label_smoothing;
  job.z_loss = config.z_loss;
  job.temperature = config.temperature.low;
  job.temperature_meaning = config.temperature_meaning;
  job.shift = config.shift;
  job.loss_scale = config.loss_scale;
  job.normaliser = config.normaliser.value_or(0);
  job.want_accuracy = config.accuracy;
  job.want_entropy = config.entropy;
  job.softcap = config.model.softcap;
  job.gradient_dtype = config.gradient_dtype(job.dtype);
}

void run_once(Job job, Contender contender, const Outputs& outputs, Progress& progress, const std::string& phase,
              ContenderReport& report) {
  job.contender = contender;
  job.d_hidden = outputs.d_hidden;
  job.d_weight = outputs.d_weight;
  job.d_bias = outputs.d_bias;
  job.losses = outputs.losses;
  progress.phase(phase);
  report.last = run_in_child(job);
  report.times_s.push_back(report.last.time_s);
  report.extra_peaks.push_back(report.last.extra_peak_bytes);
  report.time_s = median(report.times_s);
  report.extra_peak_bytes =
      std::llround(median(std::vector<double>(report.extra_peaks.begin(), report.extra_peaks.end())));
}

std::string phase_name(std::string contender, int run, int repeat) {
  if (repeat > 1) contender.append(" ").append(std::to_string(run + 1)).append(" of ").append(std::to_string(repeat));
  return contender;
}

// loss_atol is in nats a token. A sum over tokens may be off by as many times more, a scaled loss by its scale.
double loss_limit(const io::Config& config, const Outcome& dense, double loss_atol) {
  const auto tokens = static_cast<double>(dense.metrics.tokens);
  double tokens_in_loss = 1;
  if (config.reduction != Reduction::kMean) tokens_in_loss = tokens;
  if (config.normaliser) tokens_in_loss = tokens / *config.normaliser;
  return loss_atol * tokens_in_loss * std::abs(config.loss_scale);
}

void measure_differences(const Outputs& dense, const Outputs& fused, ComparisonReport& report) {
  const io::Tolerances limits = io::resolve(report.config.tolerances, report.job.dtype, report.job.gradient_dtype);
  report.loss_abs = std::abs(report.dense.last.loss - report.fused.last.loss);
  report.gates.push_back(
      io::make_gate("loss_atol", report.loss_abs, loss_limit(report.config, report.dense.last, limits.loss_atol)));
  const auto compare = [&](const char* gate, const Region& a, const Region& b, DType dtype, double limit,
                           std::optional<TensorDifference>& difference) {
    if (!a) return;
    difference = difference_of(a, b, dtype);
    report.gates.push_back(io::make_gate(gate, difference->rel_l2, limit));
  };
  const DType stored = report.job.gradient_dtype;
  compare("losses_rel_l2", dense.losses, fused.losses, DType::kFloat64, limits.losses_rel_l2, report.losses);
  compare("d_hidden_rel_l2", dense.d_hidden, fused.d_hidden, stored, limits.d_hidden_rel_l2, report.d_hidden);
  compare("d_weight_rel_l2", dense.d_weight, fused.d_weight, stored, limits.d_weight_rel_l2, report.d_weight);
  compare("d_bias_rel_l2", dense.d_bias, fused.d_bias, stored, limits.d_bias_rel_l2, report.d_bias);
}

// A key that this input gives nothing to act on is a mistake, not a wish to be forgotten.
void check_outputs_exist(const io::Config& config, const Job& job) {
  const auto reject = [&](const char* key, const char* reason) {
    throw io::Error(config.place_of(key) + " " + reason);
  };
  const io::ToleranceConfig& tolerances = config.tolerances;
  if (!job.bias) {
    if (config.is_set("gradients.d_bias") && config.gradients.d_bias) reject("gradients.d_bias", "needs a bias");
    if (tolerances.d_bias_rel_l2) reject("tolerances.d_bias_rel_l2", "needs a bias");
  }
  if (config.gradients.float32 && !config.gradients.d_hidden && !config.gradients.d_weight &&
      !(config.gradients.d_bias && job.bias)) {
    reject("gradients.dtype", "needs a gradient");
  }
}

}  // namespace

bool ComparisonReport::agrees() const {
  return std::all_of(gates.begin(), gates.end(), [](const io::Gate& gate) { return gate.pass; });
}

ContextOptions context_options_of(const io::Config& config) {
  ContextOptions options;
  options.threads = config.threads;
  if (config.kernel.workspace_bytes) options.workspace_bytes = *config.kernel.workspace_bytes;
  options.plan = config.kernel.plan;
  options.row_tile = config.kernel.time_block;
  options.vocab_tile = config.kernel.block_size;
  options.gemm_backend = config.kernel.gemm_backend;
  options.simd_target = config.kernel.simd_target;
  return options;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

int run_compare(const CompareOptions& options) {
  ComparisonReport report;
  report.config = io::load_config(options.config_path, options.assignments);
  check_json_path(options.json_path);
  report.environment = describe_environment(Context(context_options_of(report.config)));

  Progress progress(!options.quiet);
  progress.phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  const Inputs inputs =
      options.tensors.given() ? read_inputs(report.config, options.tensors) : make_seeded_inputs(report.config);
  report.job = inputs.job;
  fill_options(report.config, report.job);
  check_outputs_exist(report.config, report.job);
  const Outputs dense = make_outputs(report.config, report.job), fused = make_outputs(report.config, report.job);
  check_available(output_bytes(dense) + output_bytes(fused), "the gradients of both contenders");

  // Both contenders alternate, so that what else the machine does meets both.
  const Contender second = report.config.kernel.dense_backward ? Contender::kDense : Contender::kFused;
  for (int i = 0; i < options.repeat; ++i) {
    run_once(report.job, Contender::kDense, dense, progress, phase_name("dense", i, options.repeat), report.dense);
    run_once(report.job, second, fused, progress, phase_name("fused", i, options.repeat), report.fused);
  }
  progress.phase("comparing");
  measure_differences(dense, fused, report);
  progress.stop();

  if (!options.json_path.empty()) write_json(report, options.json_path);
  if (!options.quiet && options.json_path != "-") std::fputs(table_of(report).c_str(), stdout);
  return report.agrees() ? 0 : 1;
}

}  // namespace logitless::cli
