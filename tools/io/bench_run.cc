// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/bench_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "io/error.h"
#include "io/files.h"
#include "io/json_text.h"

namespace logitless::io {
namespace {

using Json = nlohmann::ordered_json;  // keeps the environment in the order that bench wrote

constexpr size_t kMostTextBytes = 1 << 30;  // a million turns take 20 MB per contender

// Throws Error that names a member of an object and shows its value.
[[noreturn]] void fail(const Json& object, const std::string& key, const std::string& rule = "what bench writes") {
  const std::string name = one_line(key, 60);
  if (!object.is_object() || !object.contains(key)) throw Error(name + " is missing");
  throw Error(name + " is " + one_line(object[key].dump(-1, ' ', true), 60) + ", not " + rule);
}

template <class T>
T get(const Json& object, const std::string& key) try {
  const Json& value = object.at(key);
  if (std::is_same_v<T, int64_t> && !value.is_number_integer()) fail(object, key);
  return value.get<T>();
} catch (const nlohmann::json::exception&) {
  fail(object, key);
}

// The same for seconds or bytes, limited so that sums and differences stay finite.
double size(const Json& object, const std::string& key) {
  const auto value = get<double>(object, key);
  if (value >= 0 && value <= 0x1p60) return value;
  fail(object, key, "from 0 to 2^60");
}
int64_t bytes(const Json& object, const std::string& key) {
  size(object, key);
  return get<int64_t>(object, key);
}

bool has(const Json& object, const char* key) { return object.contains(key) && !object[key].is_null(); }

void check_type(const Json& line, const std::string& type) {
  if (get<std::string>(line, "type") != type) fail(line, "type", '"' + type + '"');
}

void read_header(const Json& header, BenchRun& run) {
  check_type(header, "header");
  if (get<int64_t>(header, "schema") != 1) fail(header, "schema", "1");
  run.settings = get<std::vector<std::string>>(header, "settings");
  for (const Json& swept : get<std::vector<Json>>(header, "sweep")) {
    run.sweep.push_back({get<std::string>(swept, "key"), get<std::vector<std::string>>(swept, "values")});
  }
  run.iters = get<int64_t>(header, "iters");
  run.warmup = get<int64_t>(header, "warmup");
  run.inputs = get<std::string>(header, "inputs");
  run.contenders = get<std::vector<std::string>>(header, "contenders");
  const auto environment = get<Json>(header, "environment");
  if (!environment.is_object()) fail(header, "environment");
  for (const auto& [key, value] : environment.items()) {
    if (key == "warnings") continue;
    run.environment.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true));
  }
}

Measurement read_measurement(const std::string& name, const Json& fields) try {
  Measurement m;
  m.contender = name;
  if (get<std::string>(fields, "status") != "ok") {
    m.error = get<std::string>(fields, "message");
    if (m.error.empty()) m.error = "it failed without a message";
    return m;
  }
  m.first_s = size(fields, "first_s");
  m.median_s = size(fields, "median_s");
  m.spread_s = size(fields, "spread_s");
  if (has(fields, "gemm_efficiency")) m.gemm_efficiency = size(fields, "gemm_efficiency");
  m.extra_peak_bytes = bytes(fields, "extra_peak_bytes");
  if (has(fields, "extra_peak_spread_bytes")) m.extra_peak_spread_bytes = bytes(fields, "extra_peak_spread_bytes");
  m.workspace_bytes = bytes(fields, "workspace_bytes");
  m.plan = get<std::string>(fields, "plan");
  return m;
} catch (const Error& e) {
  throw Error("contender " + one_line(name, 60) + ": " + e.what());
}

Point read_point(const Json& fields, const BenchRun& run) {
  check_type(fields, "point");
  Point point;
  const auto at = get<Json>(fields, "at");
  for (const SweptKey& swept : run.sweep) point.at.push_back(get<std::string>(at, swept.key));
  point.task = get<std::string>(fields, "task");
  point.level = get<std::string>(fields, "level");
  point.layout = get<std::string>(get<Json>(fields, "shape"), "layout");
  if (has(fields, "gemm_rate_flops")) point.gemm_rate_flops = size(fields, "gemm_rate_flops");
  for (const Json& contender : get<std::vector<Json>>(fields, "contenders")) {
    point.measurements.push_back(read_measurement(get<std::string>(contender, "name"), contender));
  }
  return point;
}

}  // namespace

void parse_line(const std::string& path, int64_t number, std::string_view line, BenchRun& run) {
  const std::string place = path + ":" + std::to_string(number) + ": ";
  const Json fields = parse_json(line, place);
  try {
    if (number > 1) return run.points.push_back(read_point(fields, run));
    run.name = std::filesystem::path(path).filename().string();
    read_header(fields, run);
  } catch (const Error& e) {
    throw Error(place + e.what());
  }
}

BenchRun parse_run(const std::string& path, std::string_view text) {
  BenchRun run;
  int64_t number = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    parse_line(path, ++number, text.substr(0, end), run);
    text.remove_prefix(end + 1);
  }
  if (number == 0) throw Error(path + ":1: is not a file of bench: it has no whole line");
  return run;
}

BenchRun read_run(const std::string& path) {
  BenchRun run = parse_run(path, read_text_file(path, kMostTextBytes));
  if (run.points.empty()) throw Error(path + ":2: there is no point after the header");
  return run;
}

}  // namespace logitless::io
