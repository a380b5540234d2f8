// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/bench_against.h"
#include "cli/bench_file.h"
#include "cli/bench_plan.h"
#include "cli/bench_table.h"
#include "cli/environment_json.h"
#include "cli/metrics_file.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/report_text.h"
#include "cli/task_call.h"
#include "logitless/context.h"
#include "report/reader.h"

namespace logitless::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  gmtime_r(&now, &fields);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

Json header_of(const BenchOptions& options, const BenchPlan& plan, const Environment& environment) {
  Json sweep = Json::array();
  for (const SweptKey& swept : plan.sweep) sweep.push_back({{"key", swept.key}, {"values", swept.values}});
  Json header = {{"type", "header"},
                 {"schema", 1},
                 {"version", environment.version},
                 {"started", now_in_utc()},
                 {"settings", plan.shared_settings()},
                 {"sweep", sweep},
                 {"iters", options.iters},
                 {"warmup", options.warmup},
                 {"inputs", options.inputs},
                 {"contenders", plan.contenders},
                 {"environment", json_of(environment)}};
  if (!plan.profiles().empty()) header["profiles"] = plan.profiles();
  return header;
}

Json point_json(const BenchPlan& plan, const PlannedPoint& point, const Json& measured) {
  Json at = Json::object();
  for (size_t i = 0; i < point.at.size(); ++i) at[plan.sweep[i].key] = point.at[i];
  Json json = {{"type", "point"},
               {"at", at},
               {"task", io::name_of(point.config.task)},
               {"level", io::name_of(point.config.level)},
               {"shape", shape_json(seeded_shape(point.config))}};
  json.update(measured);
  return json;
}

void write_metrics(const report::Point& point, int64_t step, MetricsFile& file) {
  if (point.gemm_rate_flops) file.write(step, "gemm_rate_flops", *point.gemm_rate_flops);
  for (const report::Measurement& m : point.measurements) {
    if (!m.ok()) continue;
    file.write(step, m.contender + "/loss", m.loss);
    file.write(step, m.contender + "/median_s", m.median_s);
    if (m.gemm_efficiency) file.write(step, m.contender + "/gemm_efficiency", *m.gemm_efficiency);
    file.write(step, m.contender + "/extra_peak_bytes", static_cast<double>(m.extra_peak_bytes));
  }
}

// Tells how long the rest takes from how long the work so far took.
class TimeLeft {
 public:
  explicit TimeLeft(double work) : left_(work) {}

  /// `share` of a point's work is done.
  std::optional<double> at(double work, double share) const {
    const double done = done_ + share * work;
    if (done <= 0) return std::nullopt;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return seconds / done * (left_ - share * work);
  }
  void finish(double work) {
    done_ += work;
    left_ -= work;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  double done_ = 0, left_;
};

class Bench {
 public:
  Bench(const BenchOptions& options, const BenchPlan& plan, const Environment& environment)
      : options_(options),
        plan_(plan),
        environment_(environment),
        file_(options.output_path, header_of(options, plan, environment), options.overwrite),
        progress_(!options.quiet) {
    if (!options.metrics_path.empty()) metrics_.emplace(options.metrics_path);
  }

  void run() {
    double work = 0;
    size_t there = 0;
    for (const PlannedPoint& point : plan_.points) {
      const bool measured = file_.find(point.at) != nullptr;
      there += measured;
      if (!measured) work += point.work;
    }
    if (there > 0) {
      progress_.log(format("%zu of %zu points are in ", there, plan_.points.size()) + options_.output_path +
                    " already");
    }
    if (there < plan_.points.size()) print(machine_text(environment_) + "\n" + warnings_text(environment_));
    TimeLeft left(work);
    for (size_t i = 0; i < plan_.points.size(); ++i) {
      const report::Point* point = file_.find(plan_.points[i].at);
      if (!point) point = &measure(i, left);
      if (metrics_) write_metrics(*point, static_cast<int64_t>(i) + 1, *metrics_);
    }
    progress_.stop();
  }

  const report::BenchRun& result() const { return file_.run(); }

  /// Standard output belongs to the JSON Lines where they go there.
  void print(const std::string& text) {
    if (!options_.quiet && options_.output_path != "-") progress_.print(text);
  }

 private:
  const report::Point& measure(size_t index, TimeLeft& left) {
    const PlannedPoint& planned = plan_.points[index];
    const std::string name = format("point %zu of %zu: ", index + 1, plan_.points.size()) + planned.name;
    progress_.log(name);
    const auto values = options_.inputs == "zeros" ? SeededValues::kZeros : SeededValues::kRandom;
    PointRequest request{planned.config.settings, planned.contenders, options_.warmup, options_.iters, values};
    const Json measured = measure_point(std::move(request), [&](const std::string& step, double share) {
      progress_.phase(name + ", " + step, left.at(planned.work, share));
    });
    const report::Point& point = file_.append(point_json(plan_, planned, measured));
    left.finish(planned.work);
    std::string text = "\n";
    text.append(planned.name).append("\n");
    text += shape_text(point.task, planned.config.model.name, seeded_shape(planned.config));
    if (point.gemm_rate_flops) text += format("; GEMM rate %.1f GFLOP/s", *point.gemm_rate_flops / 1e9);
    text += "\n";
    if (!planned.profile.empty()) text.append(planned.profile).append("\n");
    print(text + table_of(point));
    return point;
  }

  const BenchOptions& options_;
  const BenchPlan& plan_;
  const Environment& environment_;
  BenchFile file_;
  std::optional<MetricsFile> metrics_;
  Progress progress_;
};

void check_paths(const BenchOptions& options, const Profile& profile) {
  if (options.metrics_path == "-") throw io::Error("--metrics -: must be the name of a file");
  const OutputFile output{"-o", options.output_path}, metrics{"--metrics", options.metrics_path};
  const InputFile against{"the file that --against names", options.against_path};
  check_output_files({output, metrics}, input_files({}, profile, {options.config_path.value_or("")}));
  check_output_files({metrics}, {against});
  if (options.overwrite) check_output_files({output}, {against});  // else it is resumed: nothing is lost
}

bool every_point_has_a_result(const report::BenchRun& run) {
  return std::all_of(run.points.begin(), run.points.end(), [](const report::Point& point) {
    return std::any_of(point.measurements.begin(), point.measurements.end(), [](const auto& m) { return m.ok(); });
  });
}

std::vector<std::vector<std::string>> places_of(const BenchPlan& plan) {
  std::vector<std::vector<std::string>> places;
  for (const PlannedPoint& point : plan.points) places.push_back(point.at);
  return places;
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const Profile profile(options.profile_path);
  check_paths(options, profile);
  const BenchPlan plan = plan_bench(options, profile);
  const Environment environment = describe_environment(Context(context_options_of(plan.points.front().config)));
  std::optional<report::BenchRun> before;
  if (!options.against_path.empty()) {
    before = report::read_run(options.against_path);
    report::BenchRun header;
    report::parse_line("this run", 1, header_of(options, plan, environment).dump(), header);
    check_comparable(*before, header, places_of(plan));
  }
  Bench bench(options, plan, environment);
  bench.run();
  if (!every_point_has_a_result(bench.result())) {
    std::fprintf(stderr, "logitless: there is a point at which no contender ran\n");
    return 3;
  }
  if (!before) return 0;
  const Comparison comparison = compare_runs(*before, bench.result(), options.margin);
  bench.print(std::string("\n").append(table_of(comparison)));
  return comparison.worse() ? 1 : 0;
}

}  // namespace logitless::cli
