// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare/compare.h"

#include <algorithm>
#include <cmath>

#include "cli/common/command_line.h"
#include "cli/common/gates.h"
#include "cli/common/output.h"
#include "cli/common/profile.h"
#include "cli/common/progress.h"
#include "cli/common/task_call.h"
#include "cli/measure/turns.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

constexpr const char* kCompareHelp =
    "Runs the dense and the fused path on one input and compares loss, gradients, time and memory";

constexpr const char* kCompareFooter =
    R"(The two take turns in a process of their own. The peak memory of each is what a call took above its inputs and
outputs.

Tolerances: tolerances.loss_atol is in nats a token (times the tokens under reduction sum or none);
losses_rel_l2, d_hidden_rel_l2, d_weight_rel_l2 and d_bias_rel_l2 are relative L2 distances. dlogits_max_abs
and dlogits_max_rel belong to a check of the logits' own gradient: compare reads and checks them, and its
report lists them under gates_not_applied.

Exit status: 0 the two agree, 1 they lie apart beyond the tolerances (a NaN does too), 2 a bad option, config or
input, 3 a path ran out of memory or died.

Examples:
  logitless compare configs/tiny.yaml --set model.dtype=bfloat16 --json report.json
  logitless compare --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors)";

struct CompareOptions {
  ConfigFlags config;
  TensorPaths tensors;
  std::string json_path;  ///< empty: none; "-": standard output
  int repeat = 1;
  std::string profile_path;  ///< of --profile
  bool quiet = false;
};

ContenderReport report_of(const Json& measured, const Json& details) {
  return {.loss = measured["loss"].number(),
          .time_s = measured["median_s"].number(),
          .extra_peak_bytes = measured["extra_peak_bytes"].integer(),
          .workspace_bytes = measured["workspace_bytes"].integer(),
          .plan = measured["plan"].text(),
          .plan_text = details["plan_text"].text(),
          .peak_method = details["peak_method"].text(),
          .peak_unusual = measured.has("extra_peak_method"),
          .metrics = details["metrics"],
          .times_s = measured["times_s"],
          .extra_peaks_bytes = details["extra_peaks_bytes"]};
}

void add_gates(ComparisonReport& report) {
  const io::Config& config = report.config;
  const io::Tolerances limits = io::resolve(config.tolerances, report.job.dtype, report.job.gradient_dtype);
  report.loss_abs = std::abs(report.dense.loss - report.fused.loss);
  const double loss_atol = loss_limit(config, report.job, report.dense.metric("tokens"), limits.loss_atol);
  report.gates.push_back(io::make_gate("loss_atol", report.loss_abs, loss_atol));
  const auto gate = [&](const std::string& name, double limit) {
    const TensorDifference* difference = report.difference(name);
    if (difference) report.gates.push_back(io::make_gate(name + "_rel_l2", difference->rel_l2, limit));
  };
  gate("losses", limits.losses_rel_l2);
  gate("d_hidden", limits.d_hidden_rel_l2);
  gate("d_weight", limits.d_weight_rel_l2);
  gate("d_bias", limits.d_bias_rel_l2);
}

int run_compare(const CompareOptions& options) {
  ComparisonReport report;
  report.config = options.config.load();
  if (report.config.level == io::Level::kLogits) {
    throw io::Error(report.config.place_of("level") + " is logits: compare works on hidden states and a head");
  }
  const Profile profile(options.profile_path);
  check_output_files({{"--json", options.json_path}},
                     input_files(options.tensors, profile, {options.config.path().value_or("")}));
  report.environment = describe_environment(Context(context_options_of(report.config)));

  Progress progress(!options.quiet);
  // Fused goes first: where the system permits no reset of the peak, only one that is above all earlier ones is exact.
  const Json answer = measure_turns({.settings = report.config.settings,
                                     .contenders = {{.name = "fused"}, {.name = "dense", .dense = true}},
                                     .warmup = 0,
                                     .iters = options.repeat,
                                     .gemm_rate = false,
                                     .compare = true,
                                     .places = report.config.places,
                                     .tensors = options.tensors,
                                     .profile_path = options.profile_path},
                                    [&](const std::string& step, double) { progress.phase(step); });
  progress.note(answer["note"].text());
  report.job = job_of(answer["job"]);
  report.has_bias = answer["has_bias"].flag();
  report.fused = report_of(answer["contenders"].items()[0], answer["details"].items()[0]);
  report.dense = report_of(answer["contenders"].items()[1], answer["details"].items()[1]);
  for (const Json::Member& one : answer["differences"].members()) {
    report.differences[one.name] = {one.value["max_abs"].number(), one.value["rel_l2"].number()};
  }
  add_gates(report);
  progress.erase();

  if (!options.json_path.empty()) write_output("--json", options.json_path, json_of(report).page());
  if (!options.quiet && options.json_path != "-") print(table_of(report));
  return report.agrees() ? 0 : 1;
}

void add_flags(Command& compare, CompareOptions& options) {
  options.config.add_to(compare);
  compare.tensor_flags(options.tensors);
  compare.value("--json", options.json_path, "FILE", "writes the report as one JSON object; - is standard output");
  compare.value("--repeat", options.repeat, "N", "runs each contender N times, alternating, and reports medians")
      .within(1, 1000000);
  compare.profile_flag(options.profile_path);
  compare.flag("--quiet", options.quiet, "prints no table and no progress: the exit status says it");
}

}  // namespace

bool ComparisonReport::agrees() const { return all_pass(gates); }

const TensorDifference* ComparisonReport::difference(const std::string& name) const {
  const auto it = differences.find(name);
  return it == differences.end() ? nullptr : &it->second;
}

void add_compare(CommandLine& line) { line.add("compare", kCompareHelp, kCompareFooter, add_flags, run_compare); }

}  // namespace logitless::cli
