// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "report/page.h"

#include <cmath>
#include <kainjow/mustache.hpp>
#include <nlohmann/json.hpp>

#include "report/units.h"

namespace logitless::report {

// The files beside this one; assets.cmake puts them into the program.
extern const char* const kPageTemplate;  // page.html
extern const char* const kPageStyle;     // page.css
extern const char* const kPageScript;    // Chart.js with its licence, and page.js
extern const char* const kScriptHash;    // SHA-256 of kPageScript in base64, for the Content-Security-Policy

namespace {

using Json = nlohmann::ordered_json;
using kainjow::mustache::data;

// What the template calls {{name}}; {{#name}} leaves out a text that is empty.
data template_data(const Json& json) {
  if (json.is_string() && json != "") return data(json.get<std::string>());
  if (json.is_array()) {
    data list(data::type::list);
    for (const Json& item : json) list << template_data(item);
    return list;
  }
  if (!json.is_object()) return data(json.is_boolean() && json.get<bool>());
  data object;
  for (const auto& [name, value] : json.items()) object.set(name, template_data(value));
  return object;
}

Json facts(const std::vector<std::pair<std::string, std::string>>& list) {
  Json facts = Json::array();
  for (const auto& [name, value] : list) facts.push_back({{"name", name}, {"value", value}});
  return facts;
}

// The columns of the table, from the time on.
Json cells(const Point& point, const Measurement& m) {
  return {text_of(point, m, Unit::kSeconds) + " " + spread_text(m.median_s, m.spread_s),
          text_of(point, m, Unit::kTimeRatio),
          human_seconds(m.first_s),
          m.gemm_efficiency ? fixed(100 * *m.gemm_efficiency, 0) + " %" : "–",
          text_of(point, m, Unit::kBytes),
          text_of(point, m, Unit::kMemoryRatio),
          m.plan.empty() ? "–" : human_bytes(m.workspace_bytes),
          std::isnan(m.loss) ? "not finite" : fixed(m.loss, 6),
          m.plan.empty() ? "–" : m.plan};
}

// Sizes other than the tokens are swept under their own names or stand above the table, common to all points.
std::string heading_of(const BenchRun& run, const Point& point) {
  std::string text;
  for (size_t key = 0; key < run.sweep.size(); ++key) text += run.sweep[key].key + " = " + point.at[key] + " · ";
  text += grouped(point.shape.tokens) + " tokens · " + point.task + ", level " + point.level;
  if (point.gemm_rate_flops) text += " · GEMM " + trimmed(*point.gemm_rate_flops / 1e9, 1) + " GFLOP/s";
  return text;
}

Json table_of(const BenchRun& run) {
  Json points = Json::array();
  for (const Point& point : run.points) {
    Json measurements = Json::array();
    for (const Measurement& m : point.measurements) {
      measurements.push_back(
          {{"contender", m.contender}, {"error", m.error}, {"cells", m.ok() ? cells(point, m) : Json::array()}});
    }
    points.push_back({{"heading", heading_of(run, point)}, {"measurements", std::move(measurements)}});
  }
  return points;
}

Json setup_of(const BenchRun& run) {
  std::vector<std::pair<std::string, std::string>> list = {{"file", run.name},
                                                           {"date", run.started},
                                                           {"timed calls", std::to_string(run.iters)},
                                                           {"warm-up calls", std::to_string(run.warmup)},
                                                           {"inputs", run.inputs},
                                                           {"contenders", joined(run.contenders)}};
  for (const SweptKey& swept : run.sweep) list.emplace_back("sweep", swept.key + " = " + joined(swept.values));
  return facts(list);
}

// "logitless 0.1.0, AMD EPYC 9R14, 2 threads, AVX3_ZEN4, openblas SkylakeX, 2026-11-21": what the environment
// tells of it.
std::string machine_line(const BenchRun& run) {
  const std::string threads = run.fact("threads"), core = run.fact("blas_core");
  std::vector<std::string> parts = {"logitless " + run.version,
                                    run.fact("cpu"),
                                    threads + (threads == "1" ? " thread" : " threads"),
                                    run.fact("simd_target"),
                                    run.fact("gemm_backend") + (core.empty() ? "" : " " + core),
                                    run.started.substr(0, run.started.find('T'))};
  std::erase_if(parts, [](const std::string& part) { return part.empty() || part[0] == ' '; });
  return joined(parts);
}

Json section_of(const BenchRun& run, bool alone) {
  Json top = headline(run);
  for (const std::string& note : run.notes) top["remarks"].push_back(note);
  std::vector<const Point*> points;
  for (const Point& point : run.points) points.push_back(&point);
  return {{"name", run.name},
          {"among_others", !alone},
          {"level", alone ? "2" : "3"},
          {"machine", machine_line(run)},
          {"lead", top["lead"]},
          {"claims", top["claims"]},
          {"remarks", top["remarks"]},
          {"chapters", chapters(run)},
          {"common_shape", common_shape(points)},
          {"points", table_of(run)},
          {"setup", setup_of(run)},
          {"settings", run.settings},
          {"warnings", run.warnings},
          {"environment", facts(run.environment)}};
}

// The charts of all sections, in the order of the page, for a <script> element: no text can end it.
std::string charts_of(const Json& sections) {
  Json charts = Json::array();
  for (const Json& section : sections) {
    for (const Json& chapter : section["chapters"]) {
      for (const Json& row : chapter["rows"]) {
        for (const Json& chart : row["charts"]) charts.push_back(chart);
      }
    }
  }
  std::string text;
  for (const char c : charts.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return text;
}

// As text or as an attribute's value: nothing that comes in can turn into markup. Control characters that
// HTML forbids become U+FFFD.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool forbidden = (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f;
    out += forbidden ? std::string("\uFFFD") : kainjow::mustache::html_escape(std::string(1, c));
  }
  return out;
}

}  // namespace

std::string page(const std::vector<BenchRun>& runs) {
  Json sections = Json::array();
  for (const BenchRun& run : runs) sections.push_back(section_of(run, runs.size() == 1));
  data all = template_data({{"title", runs.front().name}, {"runs", sections}});
  all.set("charts", charts_of(sections));
  all.set("style", kPageStyle);
  all.set("script", kPageScript);
  all.set("script_hash", kScriptHash);
  kainjow::mustache::mustache html{std::string(kPageTemplate)};
  html.set_custom_escape(escape);
  return html.render(all);
}

}  // namespace logitless::report
