// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gradcheck/gradcheck.h"

#include <algorithm>

#include "cli/common/gates.h"

namespace logitless::cli {
namespace {

Json check_json(const GradcheckReport& report) {
  Json json = {{"config", report.name}, {"task", name_of(report.config.task)}, {"level", name_of(report.config.level)}};
  if (!report.error.empty()) {
    json["error"] = report.error;
    json["pass"] = false;
    return json;
  }
  json["shape"] = shape_json(report.job);
  json["gradient_dtype"] = name_of(report.job.gradient_dtype);
  for (const auto& [name, value] : report.metrics) json["metrics"][name] = value;
  json["gates"] = gates_json(report.gates);
  json["gates_not_applied"] = gates_not_applied(report.config, report.gates);
  json["pass"] = report.passes();
  json["environment"] = environment_json(report.environment);
  return json;
}

std::string what_was_checked(const GradcheckReport& report) {
  const Job& job = report.job;
  const std::string what = std::string(name_of(report.config.level)) + " " + name_of(report.config.task);
  if (report.config.level == io::Level::kFused) return shape_text(what, report.config.model.name, job);
  return what + (report.config.model.name.empty() ? "" : ", " + report.config.model.name) +
         format(": %lld tokens, vocab %lld, %s", static_cast<long long>(job.tokens),
                static_cast<long long>(job.vocab_size), name_of(job.dtype));
}

}  // namespace

std::string table_of(const GradcheckReport& report) {
  if (!report.error.empty()) return "";
  std::string text = report.name + ": " + what_was_checked(report) + ", gradients in " +
                     name_of(report.job.gradient_dtype) + "\n" + machine_text(report.environment) + "\n" +
                     warnings_text(report.environment) + "\n";
  for (const auto& [name, value] : report.metrics) {
    text += format(name.starts_with("time/") ? "%-22s %16.3f\n" : "%-22s %16.9g\n", name.c_str(), value);
  }
  text += "\n";
  text += gates_text("gate", report.gates);
  for (const std::string& name : gates_not_applied(report.config, report.gates)) {
    text +=
        format("%-18s %14s %14s   not checked here: this level or output has no such figure\n", name.c_str(), "-", "-");
  }
  return text + (report.passes() ? "all gates hold\n\n" : "NOT all gates hold\n\n");
}

Json json_of(std::span<const GradcheckReport> reports) {
  Json json;
  json["checks"] = Json::Array();
  for (const GradcheckReport& report : reports) json["checks"].push_back(check_json(report));
  json["pass"] = std::ranges::all_of(reports, [](const GradcheckReport& report) { return report.passes(); });
  return json;
}

void write_metrics(std::span<const GradcheckReport> reports, MetricsFile& file) {
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    for (const auto& [name, value] : reports[i].metrics) file.write(step, name, value);
    for (const io::Gate& gate : reports[i].gates) file.write(step, "gate/" + gate.name, gate.pass ? 1 : 0);
  }
}

}  // namespace logitless::cli
