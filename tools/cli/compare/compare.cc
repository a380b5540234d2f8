// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare`: dense and fused take turns on the same input. Under mpirun it is one process and ranks
// (over_ranks.cc).
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common/task_call.h"
#include "cli/compare/agreement.h"
#include "cli/compare/compare.h"
#include "cli/measure/turns.h"
#include "logitless/context.h"
#include "report/bench_run.h"

namespace logitless::cli {
namespace {

constexpr const char* kCompareHelp =
    "Runs the dense and the fused path on one input and compares loss, gradients, time and memory";

constexpr const char* kCompareFooter =
    R"(Exit status: 0 the two agree, 1 they lie apart beyond the tolerances (a NaN does too), 2 a bad option, config or
input, 3 a path ran out of memory or died. `man logitless-compare` says what is compared.

Examples:
  logitless compare configs/tiny.yaml --set model.dtype=bfloat16 --json report.json
  logitless compare --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors
  mpirun -n 4 logitless compare configs/tiny.yaml --set parallel.vocab=2 --set parallel.data=2)";

// What one contender did, over all its runs.
struct ContenderReport : report::Measurement {
  explicit ContenderReport(const Json& answer)
      : Measurement(report::measurement_of(answer, "the answer")), details(answer) {}

  double metric(const char* name) const { return number_of(details["metrics"].value(name, Json())); }
  std::string text(const char* key) const { return details[key]; }
  double number(const char* key) const { return number_of(details[key]); }

  Json details;  // the whole answer
};

struct ComparisonReport {
  io::Config config;
  Job job;  // shape and types
  bool has_bias = false;
  Environment environment;
  ContenderReport dense;
  ContenderReport fused;
  Agreement agreement = {};
};

double peak_ratio(const ComparisonReport& report) {
  return ratio(static_cast<double>(report.dense.extra_peak_bytes), static_cast<double>(report.fused.extra_peak_bytes));
}

std::string header_of(const ComparisonReport& report) {
  std::string text = shape_text(name_of(report.config.task), report.config.model.name, report.job) + ", gradients in " +
                     name_of(report.job.gradient_dtype) + "\n" + machine_text(report.environment);
  const size_t runs = report.dense.details["times_s"].size();
  if (runs > 1) text += format(", medians of %zu runs each", runs);
  return text + "\n" + warnings_text(report.environment);
}

Json json_of(const ComparisonReport& report) {
  const ContenderReport &dense = report.dense, &fused = report.fused;
  Json details = {{"gradient_dtype", name_of(report.job.gradient_dtype)},
                  {"dense_plan", dense.details["plan_text"]},
                  {"fused_plan", fused.details["plan_text"]},
                  {"extra_peak_method", fused.details["peak_method"]}};
  for (const std::string key : {"metrics", "times_s", "extra_peaks_bytes"}) {
    details["dense_" + key] = dense.details[key];
    details["fused_" + key] = fused.details[key];
  }
  return {{"task", name_of(report.config.task)},
          {"shape", shape_json(report.job)},
          {"dense", {{"time_s", dense.median_s}, {"extra_peak_bytes", dense.extra_peak_bytes}, {"loss", dense.loss}}},
          {"fused",
           {{"time_s", fused.median_s},
            {"extra_peak_bytes", fused.extra_peak_bytes},
            {"workspace_bytes", fused.workspace_bytes},
            {"loss", fused.loss},
            {"plan", fused.plan}}},
          {"diff", difference_json(report.agreement, report.has_bias)},
          {"ratio", {{"time", ratio(dense.median_s, fused.median_s)}, {"extra_peak", peak_ratio(report)}}},
          {"gates", gates_json(report.agreement.gates)},
          {"gates_not_applied", gates_not_applied(report.config, report.agreement.gates)},
          {"pass", report.agreement.holds()},
          {"details", details},
          {"environment", environment_json(report.environment)}};
}

std::string table_of(const ComparisonReport& report) {
  std::string text = header_of(report);
  TextTable contenders({"", "loss", "time", "extra peak", "workspace", "plan"});
  for (const ContenderReport* each : {&report.dense, &report.fused}) {
    contenders.add({each->contender, format("%.9g", each->loss), report::human_seconds(each->median_s),
                    human_bytes(each->extra_peak_bytes), human_bytes(each->workspace_bytes), each->text("plan_text")});
  }
  text += "\n" + contenders.text();
  if (report.fused.details.contains("extra_peak_method"))
    text += "extra peak: " + report.fused.text("peak_method") + "\n";
  text += "\n";
  for (const auto& [name, value] : report.dense.details["metrics"].items()) {
    if (value.is_null()) continue;
    text += format("%-18s dense %.9g, fused %.9g\n", name.c_str(), number_of(value), report.fused.metric(name.c_str()));
  }
  text += "\n";
  text += agreement_text(report.config, report.agreement);
  text += format("\ndense / fused: time %.3f, extra peak memory %.1f\n",
                 ratio(report.dense.median_s, report.fused.median_s), peak_ratio(report));
  return text + (report.agreement.holds() ? "dense and fused agree\n" : "dense and fused DISAGREE\n");
}

// Returns the exit status: 0 agreement, 1 not. Throws io::Error, InvalidInput, ChildFailure, Interrupted.
int run_compare(const CompareOptions& options) {
  const io::Config config = options.config.load_with_ranks();
  if (config.level == io::Level::kLogits) {
    throw io::Error(config.place_of("level") + " is logits: compare works on hidden states and a head");
  }
  if (options.output_path == "-") throw io::Error("-o -: must be the name of a file");
  if (config.parallel.ranks() > 1) return compare_over_ranks(options, config);
  const Profile profile(options.profile_path);
  check_output_files({{"-o", options.output_path}, {"--json", options.json_path}},
                     input_files(options.tensors, profile, {options.config.path().value_or("")}));
  const Environment environment = describe_environment(Context(context_options_of(config)));

  Progress progress(!options.quiet);
  // Fused goes first: where the system permits no reset of the peak, only one that is above all earlier ones
  // is exact.
  const Json answer = measure_turns({.settings = config.settings,
                                     .contenders = {{.name = "fused"}, {.name = "dense", .dense = true}},
                                     .warmup = 0,
                                     .iters = options.repeat,
                                     .gemm_rate = false,
                                     .compare = true,
                                     .places = config.places,
                                     .tensors = options.tensors,
                                     .profile_path = options.profile_path,
                                     .output_path = options.output_path},
                                    [&](const std::string& step, double) { progress.phase(step); });
  progress.note(answer["note"]);
  ComparisonReport report{.config = config,
                          .job = job_of(answer["job"]),
                          .has_bias = answer["has_bias"],
                          .environment = environment,
                          .dense = ContenderReport(answer["contenders"][1]),
                          .fused = ContenderReport(answer["contenders"][0])};
  const ContenderReport &dense = report.dense, &fused = report.fused;
  report.agreement = make_agreement(config, report.job, dense.metric("tokens"),
                                    std::max(dense.number("gradient_spacing"), fused.number("gradient_spacing")),
                                    std::abs(dense.loss - fused.loss), differences_of(answer["differences"]));
  progress.erase();

  if (!options.json_path.empty()) write_output("--json", options.json_path, page_of(json_of(report)));
  if (!options.quiet && options.json_path != "-") print(table_of(report));
  return report.agreement.holds() ? 0 : 1;
}

void add_flags(Command& compare, CompareOptions& options) {
  options.config.add_to(compare);
  compare.tensor_flags(options.tensors, false);
  compare.value("-o,--output", options.output_path, "FILE",
                "writes loss and gradients of the fused path, or of the ranks");
  compare.value("--json", options.json_path, "FILE", "writes the report as one JSON object; - is standard output");
  compare.value("--repeat", options.repeat, "N", "runs each contender N times, alternating, and reports medians")
      .within(1, 1000000);
  compare.profile_flag(options.profile_path);
  compare.flag("--quiet", options.quiet, "prints no table and no progress: the exit status says it");
}

}  // namespace

void add_compare(CommandLine& line) { line.add("compare", kCompareHelp, kCompareFooter, add_flags, run_compare); }

}  // namespace logitless::cli
