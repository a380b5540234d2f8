// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cli/common/gates.h"
#include "cli/common/output.h"
#include "cli/compare/compare.h"

namespace logitless::cli {
namespace {

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

double peak_ratio(const ComparisonReport& report) {
  return ratio(static_cast<double>(report.dense.extra_peak_bytes), static_cast<double>(report.fused.extra_peak_bytes));
}

Json difference_json(const ComparisonReport& report) {
  Json json = {{"loss_abs", report.loss_abs}};
  const auto add = [&](const std::string& name, bool with_max) {
    const TensorDifference* difference = report.difference(name);
    if (with_max) json[name + "_max_abs"] = difference ? Json(difference->max_abs) : Json();
    json[name + "_rel_l2"] = difference ? Json(difference->rel_l2) : Json();
  };
  if (report.difference("losses")) add("losses", true);
  add("d_hidden", true);
  add("d_weight", false);
  if (report.has_bias) add("d_bias", false);
  return json;
}

std::string contender_line(const char* name, const ContenderReport& report) {
  return format("%-7s %16.9g %10.3f s %14s %14s   %s\n", name, report.loss, report.time_s,
                human_bytes(report.extra_peak_bytes).c_str(), human_bytes(report.workspace_bytes).c_str(),
                report.plan_text.c_str());
}

std::string header_of(const ComparisonReport& report) {
  std::string text = shape_text(name_of(report.config.task), report.config.model.name, report.job) + ", gradients in " +
                     name_of(report.job.gradient_dtype) + "\n" + machine_text(report.environment);
  const size_t runs = report.dense.times_s.items().size();
  if (runs > 1) text += format(", medians of %zu runs each", runs);
  return text + "\n" + warnings_text(report.environment);
}

}  // namespace

Json json_of(const ComparisonReport& report) {
  const ContenderReport &dense = report.dense, &fused = report.fused;
  return {{"task", name_of(report.config.task)},
          {"shape", shape_json(report.job)},
          {"dense", {{"time_s", dense.time_s}, {"extra_peak_bytes", dense.extra_peak_bytes}, {"loss", dense.loss}}},
          {"fused",
           {{"time_s", fused.time_s},
            {"extra_peak_bytes", fused.extra_peak_bytes},
            {"workspace_bytes", fused.workspace_bytes},
            {"loss", fused.loss},
            {"plan", fused.plan}}},
          {"diff", difference_json(report)},
          {"ratio", {{"time", ratio(dense.time_s, fused.time_s)}, {"extra_peak", peak_ratio(report)}}},
          {"gates", gates_json(report.gates)},
          {"gates_not_applied", gates_not_applied(report.config, report.gates)},
          {"pass", report.agrees()},
          {"details",
           {{"gradient_dtype", name_of(report.job.gradient_dtype)},
            {"dense_plan", dense.plan_text},
            {"fused_plan", fused.plan_text},
            {"extra_peak_method", fused.peak_method},
            {"dense_metrics", dense.metrics},
            {"fused_metrics", fused.metrics},
            {"dense_times_s", dense.times_s},
            {"fused_times_s", fused.times_s},
            {"dense_extra_peaks_bytes", dense.extra_peaks_bytes},
            {"fused_extra_peaks_bytes", fused.extra_peaks_bytes}}},
          {"environment", environment_json(report.environment)}};
}

std::string table_of(const ComparisonReport& report) {
  std::string text = header_of(report);
  text += format("\n%-7s %16s %12s %14s %14s   %s\n", "", "loss", "time", "extra peak", "workspace", "plan");
  text += contender_line("dense", report.dense);
  text += contender_line("fused", report.fused);
  if (report.fused.peak_unusual) text += "extra peak: " + report.fused.peak_method + "\n";
  text += "\n";
  for (const Json::Member& metric : report.dense.metrics.members()) {
    const double value = metric.value.number();
    if (std::isnan(value)) continue;
    text += format("%-18s dense %.9g, fused %.9g\n", metric.name.c_str(), value, report.fused.metric(metric.name));
  }
  text += "\n";
  text += gates_text("difference", report.gates);
  for (const std::string name : {"d_hidden", "losses"}) {
    const TensorDifference* difference = report.difference(name);
    if (difference) text += format("%-18s %14.3e\n", (name + "_max_abs").c_str(), difference->max_abs);
  }
  for (const std::string& name : gates_not_applied(report.config, report.gates)) {
    text += format("%-18s %14s %14s   not compared here: it belongs to gradcheck or to an output not asked for\n",
                   name.c_str(), "-", "-");
  }
  text += format("\ndense / fused: time %.3f, extra peak memory %.1f\n",
                 ratio(report.dense.time_s, report.fused.time_s), peak_ratio(report));
  return text + (report.agrees() ? "dense and fused agree\n" : "dense and fused DISAGREE\n");
}

}  // namespace logitless::cli
