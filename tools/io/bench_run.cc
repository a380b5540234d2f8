// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "io/bench_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/error.h"
#include "io/files.h"

namespace logitless::io {
namespace {

using Json = nlohmann::ordered_json;  // Keeps the environment in the order that bench wrote.

constexpr int64_t kSchema = 1;
constexpr int64_t kMostBytes = int64_t{1} << 60;
// Times and rates lie between these or are 0, so that quotients of any two are finite.
constexpr double kLeastSize = 1e-12, kMostSize = 1e24;
constexpr size_t kMostMessage = 400;
constexpr size_t kMostTextBytes = 1 << 30;  // A million turns take 20 MB a contender.

// One JSON object and where it stands, for messages such as "run.jsonl:3: contenders[0].median_s must be
// ...".
class Fields {
 public:
  Fields(const Json& object, std::string place, std::string prefix = "")
      : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {
    if (!object.is_object()) fail((prefix_.empty() ? "the line" : prefix_) + " is not an object");
  }

  // The message may quote the file.
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(place_ + ": " + one_line(message, kMostMessage));
  }
  [[noreturn]] void reject(const std::string& key, const std::string& rule) const {
    std::string shown = object_.contains(key) ? object_[key].dump(-1, ' ', true) : "left out";
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    fail(path_of(key) + " must be " + rule + ", not " + shown);
  }
  const Json& json() const { return object_; }
  bool has(const std::string& key) const { return object_.contains(key) && !object_[key].is_null(); }

  const std::string& text(const std::string& key) const {
    return value(key, &Json::is_string, "a text").get_ref<const std::string&>();
  }
  int64_t count(const std::string& key, int64_t least = 0) const {
    const std::string rule = "an integer of at least " + std::to_string(least);
    // is_number_integer() holds for unsigned values above int64 too; these turn negative in get().
    const int64_t count = value(key, &Json::is_number_integer, rule).get<int64_t>();
    if (count < least) reject(key, rule);
    return count;
  }
  double number(const std::string& key, double least = 0) const {
    const std::string rule =
        "a number" + (std::isfinite(least) ? " of at least " + std::to_string(static_cast<int64_t>(least)) : "");
    const double number = value(key, &Json::is_number, rule).get<double>();
    if (!(number >= least)) reject(key, rule);
    return number;
  }
  /// 0, or from `least` to kMostSize.
  double size(const std::string& key, double least = kLeastSize) const {
    const double value = number(key);
    if (value > kMostSize || (value > 0 && value < least)) reject(key, "0 or a number from 1e-12 to 1e24");
    return value;
  }
  int64_t bytes(const std::string& key) const {
    const int64_t bytes = count(key);
    if (bytes > kMostBytes) reject(key, "an integer of at most 2^60");
    return bytes;
  }
  std::vector<std::string> texts(const std::string& key) const {
    const Json& list = value(key, &Json::is_array, "a list");
    if (!std::ranges::all_of(list, &Json::is_string)) reject(key, "a list of texts");
    return list;
  }
  Fields object(const std::string& key) const {
    return {has(key) ? object_[key] : value(key, &Json::is_object, "an object"), place_, path_of(key)};
  }
  std::vector<Fields> objects(const std::string& key) const {
    std::vector<Fields> list;
    for (const Json& item : value(key, &Json::is_array, "a list")) {
      list.emplace_back(item, place_, path_of(key) + "[" + std::to_string(list.size()) + "]");
    }
    return list;
  }

 private:
  const Json& value(const std::string& key, bool (Json::*is)() const noexcept, const std::string& rule) const {
    if (!has(key) || !(object_[key].*is)()) reject(key, rule);
    return object_[key];
  }
  std::string path_of(const std::string& key) const { return prefix_.empty() ? key : prefix_ + "." + key; }

  const Json& object_;
  std::string place_;
  std::string prefix_;
};

void read_header(const Fields& header, BenchRun& run) {
  if (!header.has("type") || header.text("type") != "header") header.reject("type", "\"header\" on the first line");
  if (header.count("schema") != kSchema) header.reject("schema", std::to_string(kSchema));
  header.text("version");
  header.text("started");
  run.settings = header.texts("settings");
  for (const Fields& swept : header.objects("sweep")) {
    run.sweep.push_back({swept.text("key"), swept.texts("values")});
    if (run.sweep.back().values.empty()) swept.reject("values", "a list of at least one value");
  }
  run.iters = header.count("iters", 1);
  run.warmup = header.count("warmup");
  run.inputs = header.text("inputs");
  run.contenders = header.texts("contenders");
  const Fields environment = header.object("environment");
  if (environment.has("warnings")) environment.texts("warnings");
  for (const auto& [key, value] : environment.json().items()) {
    if (key == "warnings") continue;
    run.environment.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true));
  }
}

Measurement read_measurement(const Fields& fields) {
  Measurement measurement;
  measurement.contender = fields.text("name");
  const std::string& status = fields.text("status");
  if (status == "error") {
    measurement.error = fields.text("message");
    if (measurement.error.empty()) measurement.error = "it failed without a message";
    return measurement;
  }
  if (status != "ok") fields.reject("status", "\"ok\" or \"error\"");
  // A loss that is not finite is null: JSON has no NaN.
  if (fields.has("loss")) measurement.loss = fields.number("loss", -std::numeric_limits<double>::infinity());
  measurement.first_s = fields.size("first_s");
  measurement.median_s = fields.size("median_s");
  measurement.spread_s = fields.size("spread_s", 0);
  if (fields.has("gemm_efficiency")) measurement.gemm_efficiency = fields.size("gemm_efficiency");
  measurement.extra_peak_bytes = fields.bytes("extra_peak_bytes");
  if (fields.has("extra_peak_spread_bytes")) {
    measurement.extra_peak_spread_bytes = fields.bytes("extra_peak_spread_bytes");
  }
  measurement.workspace_bytes = fields.bytes("workspace_bytes");
  measurement.plan = fields.text("plan");
  return measurement;
}

// The values of the swept keys, each one that the header announced.
std::vector<std::string> read_place(const Fields& point, const BenchRun& run) {
  const Fields at = point.object("at");
  std::vector<std::string> values;
  for (const SweptKey& swept : run.sweep) {
    const std::string& value = at.text(swept.key);
    if (std::find(swept.values.begin(), swept.values.end(), value) == swept.values.end()) {
      at.reject(swept.key, "a value of the header's sweep");
    }
    values.push_back(value);
  }
  if (at.json().size() != run.sweep.size()) point.fail("at names a key that the header does not sweep");
  for (const Point& earlier : run.points) {
    if (earlier.at == values) point.fail("this point stands in the file already");
  }
  return values;
}

Point read_point(const Fields& fields, const BenchRun& run) {
  if (!fields.has("type") || fields.text("type") != "point") fields.reject("type", "\"point\" after the first line");
  Point point;
  point.at = read_place(fields, run);
  point.task = fields.text("task");
  point.level = fields.text("level");
  const Fields shape = fields.object("shape");
  point.shape = {shape.count("tokens"), shape.count("hidden"), shape.count("vocab"), shape.text("dtype"),
                 shape.text("layout")};
  if (fields.has("gemm_rate_flops")) point.gemm_rate_flops = fields.size("gemm_rate_flops");
  for (const Fields& contender : fields.objects("contenders")) {
    Measurement measurement = read_measurement(contender);
    if (point.find(measurement.contender)) fields.fail("contender " + measurement.contender + " stands there twice");
    point.measurements.push_back(std::move(measurement));
  }
  return point;
}

Json parse_json(std::string_view line, const std::string& place) {
  if (json_depth(line) > kMostJsonDepth) {
    throw Error(place + ": is nested deeper than " + std::to_string(kMostJsonDepth) + " levels");
  }
  try {
    return Json::parse(line);
  } catch (const nlohmann::json::parse_error& e) {
    throw Error(place + ": is not JSON from byte " + std::to_string(e.byte) + " of the line on");
  } catch (const nlohmann::json::exception&) {
    throw Error(place + ": holds a number that is too large");
  }
}

void add_contenders_of_points(BenchRun& run) {
  for (const Point& point : run.points) {
    for (const Measurement& measurement : point.measurements) {
      auto& names = run.contenders;
      if (std::find(names.begin(), names.end(), measurement.contender) == names.end()) {
        names.push_back(measurement.contender);
      }
    }
  }
}

}  // namespace

void parse_line(const std::string& path, int64_t number, std::string_view line, BenchRun& run) {
  const std::string place = path + ":" + std::to_string(number);
  const Json json = parse_json(line, place);
  const Fields fields(json, place);
  if (number == 1) {
    run.name = std::filesystem::path(path).filename().string();
    read_header(fields, run);
  } else {
    run.points.push_back(read_point(fields, run));
  }
}

BenchRun parse_run(const std::string& path, std::string_view text) {
  BenchRun run;
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (++line_number == 1 && end == std::string_view::npos) {
      throw Error(path + ":1: is not a line of `logitless bench`: it does not end");
    }
    if (end == std::string_view::npos) break;
    parse_line(path, line_number, text.substr(0, end), run);
    text.remove_prefix(end + 1);
  }
  if (line_number == 0) throw Error(path + ":1: the file is empty; `logitless bench` starts one with a header");
  if (run.points.empty()) throw Error(path + ":2: there is no point after the header");
  add_contenders_of_points(run);
  return run;
}

BenchRun read_run(const std::string& path) { return parse_run(path, read_text_file(path, kMostTextBytes)); }

}  // namespace logitless::io
