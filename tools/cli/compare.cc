// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "cli/child_process.h"
#include "cli/compare_report.h"
#include "cli/gates.h"
#include "cli/process_memory.h"
#include "cli/profile_flag.h"
#include "cli/progress.h"
#include "logitless/context.h"
#include "timing/statistics.h"

namespace logitless::cli {
namespace {

// What one contender writes.
struct Outputs {
  Outputs(const io::Config& config, Job job_) : job(job_), memory(add_outputs(config, job)) {}

  Job job;  ///< with these outputs
  std::vector<SharedMemory> memory;
};

void run_once(const Inputs& inputs, const Outputs& outputs, bool dense, Progress& progress, const std::string& phase,
              ContenderReport& report) {
  Job job = outputs.job;
  job.dense = dense;
  progress.phase(phase);
  try {
    report.last = run_in_child(job);
  } catch (const ChildFailure&) {
    inputs.check_files();  // A file that was cut short kills the child that reads it.
    throw;
  }
  report.times_s.push_back(report.last.measured.time_s);
  report.extra_peaks.push_back(report.last.measured.extra_peak_bytes);
  report.time_s = timing::median(report.times_s);
  report.extra_peak_bytes =
      std::llround(timing::median(std::vector<double>(report.extra_peaks.begin(), report.extra_peaks.end())));
}

std::string phase_name(std::string contender, int run, int repeat) {
  if (repeat > 1) contender.append(" ").append(std::to_string(run + 1)).append(" of ").append(std::to_string(repeat));
  return contender;
}

void measure_differences(const Job& dense, const Job& fused, ComparisonReport& report) {
  const io::Config& config = report.config;
  const io::Tolerances limits = io::resolve(config.tolerances, dense.dtype, dense.gradient_dtype);
  report.loss_abs = std::abs(report.dense.last.loss - report.fused.last.loss);
  const double loss_atol = loss_limit(config, dense, report.dense.last.metric("tokens"), limits.loss_atol);
  report.gates.push_back(io::make_gate("loss_atol", report.loss_abs, loss_atol));
  const auto compare = [&](const char* gate, TensorId id, DType dtype, double limit,
                           std::optional<TensorDifference>& difference) {
    if (!dense.has(id)) return;
    difference = difference_of(dense[id], fused[id], dtype);
    report.gates.push_back(io::make_gate(gate, difference->rel_l2, limit));
  };
  const DType stored = dense.gradient_dtype;
  compare("losses_rel_l2", TensorId::kLosses, DType::kFloat64, limits.losses_rel_l2, report.losses);
  compare("d_hidden_rel_l2", TensorId::kDHidden, stored, limits.d_hidden_rel_l2, report.d_hidden);
  compare("d_weight_rel_l2", TensorId::kDWeight, stored, limits.d_weight_rel_l2, report.d_weight);
  compare("d_bias_rel_l2", TensorId::kDBias, stored, limits.d_bias_rel_l2, report.d_bias);
}

}  // namespace

bool ComparisonReport::agrees() const { return all_pass(gates); }

int run_compare(const CompareOptions& options) {
  ComparisonReport report;
  report.config = io::load_config(options.config_path, options.assignments);
  if (report.config.level == io::Level::kLogits) {
    throw io::Error(report.config.place_of("level") + " is logits: compare works on hidden states and a head");
  }
  const Profile profile(options.profile_path);
  check_output_files({{"--json", options.json_path}},
                     input_files(options.tensors, profile, {options.config_path.value_or("")}));

  Progress progress(!options.quiet);
  progress.phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  Inputs inputs =
      options.tensors.given() ? read_inputs(report.config, options.tensors) : make_seeded_inputs(report.config);
  progress.note(profile.apply(inputs.job, report.config));
  inputs.add_settings(report.config);
  report.environment = describe_environment(Context(context_options_of(report.config)));
  const Outputs dense(report.config, inputs.job), fused(report.config, inputs.job);
  report.job = dense.job;
  check_available(total_bytes(dense.memory) + total_bytes(fused.memory), "the gradients of both contenders");

  // Both contenders alternate, so that what else the machine does meets both.
  for (int i = 0; i < options.repeat; ++i) {
    run_once(inputs, dense, true, progress, phase_name("dense", i, options.repeat), report.dense);
    run_once(inputs, fused, false, progress, phase_name("fused", i, options.repeat), report.fused);
  }
  inputs.check_files();
  progress.phase("comparing");
  measure_differences(dense.job, fused.job, report);
  progress.stop();

  if (!options.json_path.empty()) write_json(report, options.json_path);
  if (!options.quiet && options.json_path != "-") print(table_of(report));
  return report.agrees() ? 0 : 1;
}

}  // namespace logitless::cli
