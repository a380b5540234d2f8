// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/gradcheck_report.h"

#include <algorithm>

#include "cli/environment_json.h"
#include "cli/gates.h"
#include "cli/report_text.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

Json check_json(const GradcheckReport& report) {
  Json json = {{"config", report.name}, {"task", name_of(report.config.task)}, {"level", name_of(report.config.level)}};
  if (!report.error.empty()) {
    json["error"] = report.error;
    json["pass"] = false;
    return json;
  }
  json["shape"] = shape_json(report.job);
  json["gradient_dtype"] = name_of(report.job.gradient_dtype);
  for (const auto& [name, value] : report.metrics) json["metrics"][name] = number(value);
  json["gates"] = gates_json(report.gates);
  json["gates_not_applied"] = gates_not_applied(report.config, report.gates);
  json["pass"] = report.passes();
  json["environment"] = json_of(report.environment);
  return json;
}

std::string line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string table_of(const GradcheckReport& report) {
  if (!report.error.empty()) return "";
  std::string text = report.name + ": " + name_of(report.config.level) + " " +
                     shape_text(name_of(report.config.task), report.config.model.name, report.job) + ", gradients in " +
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
  return text + (report.passes() ? "all gates hold\n\n" : "gradients or loss are WRONG beyond the tolerances\n\n");
}

std::string json_text(std::span<const GradcheckReport> reports) {
  Json json;
  json["checks"] = Json::array();
  for (const GradcheckReport& report : reports) json["checks"].push_back(check_json(report));
  json["pass"] = std::ranges::all_of(reports, [](const GradcheckReport& report) { return report.passes(); });
  return dump(json);
}

std::string metrics_text(std::span<const GradcheckReport> reports) {
  std::string text;
  for (const GradcheckReport& report : reports) {
    for (const auto& [name, value] : report.metrics) {
      text += line({{"config", report.name}, {"metric", name}, {"value", number(value)}});
    }
    for (const io::Gate& gate : report.gates) {
      text += line({{"config", report.name},
                    {"metric", "gate/" + gate.name},
                    {"value", number(gate.value)},
                    {"limit", number(gate.limit)},
                    {"pass", gate.pass}});
    }
  }
  return text;
}

}  // namespace logitless::cli
