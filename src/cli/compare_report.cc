// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/compare_report.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/environment_json.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

// JSON has no NaN and no infinity; nlohmann would write null for both as well, but this says so.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

const char* layout_name(HeadLayout layout) {
  return layout == HeadLayout::kVocabHidden ? "vocab_hidden" : "hidden_vocab";
}

const char* describe(PeakMethod method) {
  switch (method) {
    case PeakMethod::kReset:
      return "VmHWM after a reset, minus VmRSS before the call";
    case PeakMethod::kUnreset:
      return "VmHWM minus VmRSS before the call; the reset was not permitted and not needed";
    case PeakMethod::kUpperBound:
      return "upper bound: the reset of VmHWM was not permitted and an earlier peak was higher";
  }
  return "";
}

double ratio(double a, double b) { return b > 0 ? a / b : std::nan(""); }

double peak_ratio(const ComparisonReport& report) {
  return ratio(static_cast<double>(report.dense.extra_peak_bytes), static_cast<double>(report.fused.extra_peak_bytes));
}

// The tolerances that the config names and this command has nothing to hold against.
std::vector<std::string> gates_not_applied(const ComparisonReport& report) {
  std::vector<std::string> names;
  for (const auto& [key, place] : report.config.places) {
    if (!key.starts_with("tolerances.")) continue;
    const std::string name = key.substr(key.find('.') + 1);
    const auto applied = [&](const io::Gate& gate) { return gate.name == name; };
    if (std::none_of(report.gates.begin(), report.gates.end(), applied)) names.push_back(name);
  }
  return names;
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
  json["shape"] = {{"tokens", job.tokens},
                   {"hidden", job.hidden_size},
                   {"vocab", job.vocab_size},
                   {"dtype", name_of(job.dtype)},
                   {"layout", layout_name(job.layout)}};
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
  json["gates"] = Json::array();
  for (const io::Gate& gate : report.gates) {
    json["gates"].push_back(
        {{"name", gate.name}, {"value", number(gate.value)}, {"limit", number(gate.limit)}, {"pass", gate.pass}});
  }
  json["gates_not_applied"] = gates_not_applied(report);
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
  const Job& job = report.job;
  const Environment& e = report.environment;
  std::string text = name_of(report.config.task);
  if (!report.config.model.name.empty()) text += ", " + report.config.model.name;
  text +=
      format(": %lld tokens, hidden %lld, vocab %lld, %s, %s, gradients in %s\n", static_cast<long long>(job.tokens),
             static_cast<long long>(job.hidden_size), static_cast<long long>(job.vocab_size), name_of(job.dtype),
             layout_name(job.layout), name_of(job.gradient_dtype));
  text += format("%s, %d threads, %s, %s %s", e.cpu.c_str(), e.threads, e.simd_target.c_str(), e.gemm_backend.c_str(),
                 e.blas_core.c_str());
  if (report.dense.times_s.size() > 1) text += format(", medians of %zu runs each", report.dense.times_s.size());
  return text + "\n";
}

}  // namespace

std::string human_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return format(unit == 0 ? "%.0f %s" : unit < 3 ? "%.1f %s" : "%.2f %s", value, units[unit]);
}

std::string table_of(const ComparisonReport& report) {
  std::string text = header_of(report);
  for (const std::string& warning : report.environment.warnings) text += "warning: " + warning + "\n";
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
  text += format("\n%-18s %14s %14s\n", "difference", "value", "tolerance");
  for (const io::Gate& gate : report.gates) {
    text +=
        format("%-18s %14.3e %14.3e   %s\n", gate.name.c_str(), gate.value, gate.limit, gate.pass ? "pass" : "FAIL");
  }
  if (report.d_hidden) text += format("%-18s %14.3e\n", "d_hidden_max_abs", report.d_hidden->max_abs);
  if (report.losses) text += format("%-18s %14.3e\n", "losses_max_abs", report.losses->max_abs);
  for (const std::string& name : gates_not_applied(report)) {
    text += format("%-18s %14s %14s   not compared here: it belongs to gradcheck or to an output not asked for\n",
                   name.c_str(), "-", "-");
  }
  text += format("\ndense / fused: time %.3f, extra peak memory %.1f\n",
                 ratio(report.dense.time_s, report.fused.time_s), peak_ratio(report));
  return text + (report.agrees() ? "dense and fused agree\n" : "dense and fused DISAGREE\n");
}

void write_json(const ComparisonReport& report, const std::string& path) {
  // Texts from the machine or a config need not be UTF-8; a replaced letter is better than no report.
  const std::string text = report_json(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (path == "-") {
    std::cout << text << std::flush;
    if (!std::cout) throw io::Error("--json -: standard output cannot be written");
    return;
  }
  std::ofstream out(path, std::ios::trunc);
  out << text << std::flush;
  if (!out) throw io::Error("--json " + path + ": cannot be written: " + std::strerror(errno));
}

void check_json_path(const std::string& path) {
  if (path.empty() || path == "-") return;
  const std::filesystem::path file(path);
  if (std::filesystem::is_directory(file)) throw io::Error("--json " + path + ": is a directory, not a file");
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const bool exists = std::filesystem::exists(file);
  if (access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) {
    throw io::Error("--json " + path + ": cannot be written: " + std::strerror(errno));
  }
}

}  // namespace logitless::cli
