// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare_report.h"

#include <algorithm>
#include <cmath>

#include "cli/environment_json.h"
#include "cli/gates.h"
#include "cli/output_file.h"
#include "cli/report_text.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

double peak_ratio(const ComparisonReport& report) {
  return ratio(static_cast<double>(report.dense.extra_peak_bytes), static_cast<double>(report.fused.extra_peak_bytes));
}

Json metrics_json(const Outcome& outcome) {
  Json json = Json::object();
  for (const OutcomeMetric& metric : outcome.metrics) {
    if (metric.name[0]) json[metric.name] = number(metric.value);
  }
  return json;
}

Json difference_json(const ComparisonReport& report) {
  Json json = {{"loss_abs", number(report.loss_abs)}};
  const auto add = [&](const char* name, const std::optional<TensorDifference>& difference, bool with_max) {
    if (with_max) {
      json[std::string(name) + "_max_abs"] = difference ? number(difference->max_abs) : Json(nullptr);
    }
    json[std::string(name) + "_rel_l2"] = difference ? number(difference->rel_l2) : Json(nullptr);
  };
  if (report.losses) add("losses", report.losses, true);
  add("d_hidden", report.d_hidden, true);
  add("d_weight", report.d_weight, false);
  if (report.job.has(TensorId::kBias)) add("d_bias", report.d_bias, false);
  return json;
}

Json report_json(const ComparisonReport& report) {
  const Job& job = report.job;
  Json json;
  json["task"] = name_of(report.config.task);
  json["shape"] = shape_json(job);
  json["dense"] = {{"time_s", number(report.dense.time_s)},
                   {"extra_peak_bytes", report.dense.extra_peak_bytes},
                   {"loss", number(report.dense.last.loss)}};
  json["fused"] = {{"time_s", number(report.fused.time_s)},
                   {"extra_peak_bytes", report.fused.extra_peak_bytes},
                   {"workspace_bytes", report.fused.last.workspace_bytes},
                   {"loss", number(report.fused.last.loss)},
                   {"plan", name_of(report.fused.last.plan)}};
  json["diff"] = difference_json(report);
  json["ratio"] = {{"time", number(ratio(report.dense.time_s, report.fused.time_s))},
                   {"extra_peak", number(peak_ratio(report))}};
  json["gates"] = gates_json(report.gates);
  json["gates_not_applied"] = gates_not_applied(report.config, report.gates);
  json["pass"] = report.agrees();
  json["details"] = {{"gradient_dtype", name_of(job.gradient_dtype)},
                     {"dense_plan", report.dense.last.plan_text},
                     {"fused_plan", report.fused.last.plan_text},
                     {"extra_peak_method", describe(report.fused.last.measured.peak_method)},
                     {"dense_metrics", metrics_json(report.dense.last)},
                     {"fused_metrics", metrics_json(report.fused.last)},
                     {"dense_times_s", report.dense.times_s},
                     {"fused_times_s", report.fused.times_s},
                     {"dense_extra_peaks_bytes", report.dense.extra_peaks},
                     {"fused_extra_peaks_bytes", report.fused.extra_peaks}};
  json["environment"] = json_of(report.environment);
  return json;
}

std::string contender_line(const char* name, const ContenderReport& report) {
  return format("%-7s %16.9g %10.3f s %14s %14s   %s\n", name, report.last.loss, report.time_s,
                human_bytes(report.extra_peak_bytes).c_str(),
                human_bytes(static_cast<int64_t>(report.last.workspace_bytes)).c_str(), report.last.plan_text);
}

std::string header_of(const ComparisonReport& report) {
  std::string text = shape_text(name_of(report.config.task), report.config.model.name, report.job) + ", gradients in " +
                     name_of(report.job.gradient_dtype) + "\n" + machine_text(report.environment);
  if (report.dense.times_s.size() > 1) text += format(", medians of %zu runs each", report.dense.times_s.size());
  return text + "\n" + warnings_text(report.environment);
}

}  // namespace

std::string table_of(const ComparisonReport& report) {
  std::string text = header_of(report);
  text += format("\n%-7s %16s %12s %14s %14s   %s\n", "", "loss", "time", "extra peak", "workspace", "plan");
  text += contender_line("dense", report.dense);
  text += contender_line("fused", report.fused);
  if (report.fused.last.measured.peak_method != PeakMethod::kReset) {
    text += format("extra peak: %s\n", describe(report.fused.last.measured.peak_method));
  }
  text += "\n";
  for (const OutcomeMetric& metric : report.dense.last.metrics) {
    if (!metric.name[0] || std::isnan(metric.value)) continue;
    text += format("%-18s dense %.9g, fused %.9g\n", metric.name, metric.value, report.fused.last.metric(metric.name));
  }
  text += "\n";
  text += gates_text("difference", report.gates);
  if (report.d_hidden) text += format("%-18s %14.3e\n", "d_hidden_max_abs", report.d_hidden->max_abs);
  if (report.losses) text += format("%-18s %14.3e\n", "losses_max_abs", report.losses->max_abs);
  for (const std::string& name : gates_not_applied(report.config, report.gates)) {
    text += format("%-18s %14s %14s   not compared here: it belongs to gradcheck or to an output not asked for\n",
                   name.c_str(), "-", "-");
  }
  text += format("\ndense / fused: time %.3f, extra peak memory %.1f\n",
                 ratio(report.dense.time_s, report.fused.time_s), peak_ratio(report));
  return text + (report.agrees() ? "dense and fused agree\n" : "dense and fused DISAGREE\n");
}

void write_json(const ComparisonReport& report, const std::string& path) {
  write_output("--json", path, dump(report_json(report)));
}

}  // namespace logitless::cli
