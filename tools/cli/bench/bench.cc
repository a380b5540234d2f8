// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless bench`: time and memory over a sweep of config keys, written point by point.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/bench/against.h"
#include "cli/bench/file.h"
#include "cli/bench/plan.h"
#include "cli/common/task_call.h"
#include "io/bench_run.h"
#include "logitless/context.h"

namespace logitless::cli {
namespace {

constexpr const char* kBenchHelp = "Measures time and memory over a sweep of config keys";

constexpr const char* kBenchFooter =
    R"(Contenders at level fused: dense, auto (the config's kernel.plan), one_pass, two_pass, expected_row, sampled, certified
and forward (no gradients); by default dense, auto and forward. At level logits: dense, apart and in_place; by default
all. NAME:KEY=VALUE sets threads, top_k, kernel.* or backward.* for one contender, as in
one_pass:threads=1,one_pass:threads=2.

Exit status: 0 done, 1 a figure has grown since the earlier run or a contender that ran then fails now, 2 a bad option,
config or file, 3 no contender ran at one or more points of the sweep. `man logitless-bench` explains what is measured
and when a figure has grown.

Examples:
  logitless bench configs/tiny.yaml --sweep seq_len=64,128,256 --sweep model.dtype=float32,bfloat16 -o sweep.jsonl
  logitless bench configs/tiny.yaml --sweep seq_len=64,256 --iters 9 --against sweep.jsonl)";

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
  return {{"type", "header"},
          {"schema", 1},
          {"version", environment.version},
          {"started", now_in_utc()},
          {"settings", plan.shared_settings()},
          {"sweep", sweep},
          {"iters", options.iters},
          {"warmup", options.warmup},
          {"inputs", options.inputs},
          {"contenders", plan.contenders},
          {"environment", environment_json(environment)}};
}

Json point_json(const BenchPlan& plan, const PlannedPoint& point, const Json& measured) {
  Json at = Json::object();
  for (size_t i = 0; i < plan.sweep.size(); ++i) at[plan.sweep[i].key] = point.outline.at[i];
  Json json = {{"type", "point"},
               {"at", at},
               {"task", point.outline.task},
               {"level", point.outline.level},
               {"shape", shape_json(seeded_shape(point.config))}};
  json.update(measured);
  return json;
}

class Bench {
 public:
  Bench(const BenchOptions& options, const BenchPlan& plan, const Environment& environment)
      : options_(options),
        plan_(plan),
        environment_(environment),
        file_(options.output_path, header_of(options, plan, environment), options.overwrite),
        progress_(!options.quiet) {}

  void run() {
    const auto is_measured = [&](const PlannedPoint& point) { return file_.find(point.outline) != nullptr; };
    const auto measured_points = static_cast<size_t>(std::ranges::count_if(plan_.points, is_measured));
    if (measured_points > 0) {
      progress_.log(format("%zu of %zu points are in ", measured_points, plan_.points.size()) + options_.output_path +
                    " already");
    }
    if (measured_points < plan_.points.size()) print(machine_text(environment_) + "\n" + warnings_text(environment_));
    for (size_t i = 0; i < plan_.points.size(); ++i) {
      if (!is_measured(plan_.points[i])) measure(i);
    }
    progress_.erase();
  }

  const io::BenchRun& result() const { return file_.run(); }

  /// Prints nothing if the JSON Lines go to standard output.
  void print(const std::string& text) {
    if (!options_.quiet && options_.output_path != "-") progress_.print(text);
  }

 private:
  void measure(size_t index) {
    const PlannedPoint& planned = plan_.points[index];
    const std::string name = format("point %zu of %zu: ", index + 1, plan_.points.size()) + planned.name;
    progress_.log(name);
    const auto values = options_.inputs == "zeros" ? SeededValues::kZeros : SeededValues::kRandom;
    TurnsRequest request{planned.config.settings, planned.contenders, options_.warmup, options_.iters, values};
    const Json measured =
        measure_turns(std::move(request), [&](const std::string& step) { progress_.phase(name + ", " + step); });
    const io::Point& point = file_.append(point_json(plan_, planned, measured));
    std::string text = "\n";
    text.append(planned.name).append("\n");
    text += shape_text(point.task, planned.config.model.name, seeded_shape(planned.config));
    if (point.gemm_rate_flops) text += format("; GEMM rate %.1f GFLOP/s", *point.gemm_rate_flops / 1e9);
    text += "\n";
    print(text + measurements_text(point.measurements, point.find_ok(io::kDense)));
  }

  const BenchOptions& options_;
  const BenchPlan& plan_;
  const Environment& environment_;
  BenchFile file_;
  Progress progress_;
};

void check_paths(const BenchOptions& options) {
  const OutputFile output{"-o", options.output_path};
  check_output_files({output}, {{"the config", options.config.path().value_or("")}});
  // Resuming a file loses nothing, so only --overwrite is checked.
  if (options.overwrite) check_output_files({output}, {{"the file that --against names", options.against_path}});
}

bool has_result(const io::Point& point) {
  return std::ranges::any_of(point.measurements, [](const io::Measurement& m) { return m.ok(); });
}

// Returns the exit status: 0 done, 1 something grew against the earlier run, 3 no contender ran at some
// point. Throws io::Error, InvalidInput, ChildFailure.
int run_bench(const BenchOptions& options) {
  check_paths(options);
  const BenchPlan plan = plan_bench(options);
  const Environment environment = describe_environment(Context(context_options_of(plan.points.front().config)));
  std::optional<io::BenchRun> before;
  if (!options.against_path.empty()) {
    before = io::of_option("--against", [&] { return io::read_run(options.against_path); });
    io::BenchRun planned;
    io::parse_line("this run", 1, line_of(header_of(options, plan, environment)), planned);
    for (const PlannedPoint& point : plan.points) planned.points.push_back(point.outline);
    check_comparable(*before, planned);
  }
  Bench bench(options, plan, environment);
  bench.run();
  if (!std::ranges::all_of(bench.result().points, has_result)) {
    complain("no contender ran at some point of the sweep");
    return 3;
  }
  if (!before) return 0;
  const Comparison comparison = compare_runs(*before, bench.result(), options.margin);
  bench.print("\n" + comparison.table);
  return comparison.worse ? 1 : 0;
}

// CLI::Range accepts NaN.
std::string is_margin(const std::string& text) {
  double number = 0;
  const bool inside = CLI::detail::lexical_cast(text, number) && number >= 0 && number <= 1e6;
  return inside ? "" : "must be a number from 0 to 1e+06, not " + text;
}

void add_flags(CLI::App& bench, BenchOptions& options) {
  options.config.add_to(bench);
  bench.add_option("--sweep", options.sweep, "measures each of these values of a key; may be repeated")
      ->type_name("KEY=VALUE,VALUE...")
      ->allow_extra_args(false);
  bench.add_option("--contenders", options.contenders, "the contenders to measure")
      ->type_name("NAME,NAME...")
      ->allow_extra_args(false)
      ->delimiter(',');
  bench.add_option("--warmup", options.warmup, "untimed turns before the timed ones; 1 by default")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000));
  bench.add_option("--iters", options.iters, "timed turns; 5 by default")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  bench.add_option("--inputs", options.inputs, "random or zeros; random by default")
      ->type_name("KIND")
      ->check(CLI::IsMember({"random", "zeros"}));
  CLI::Option* const output =
      bench
          .add_option("-o,--output", options.output_path,
                      "writes one JSON line per point as soon as the point is measured; - is standard output")
          ->type_name("FILE");
  bench.add_flag("--overwrite", options.overwrite, "overwrites the output file, whatever it holds")->needs(output);
  CLI::Option* const against =
      bench.add_option("--against", options.against_path, "compares this run with an earlier run's output file")
          ->type_name("FILE");
  bench
      .add_option("--margin", options.margin,
                  "the allowed growth beyond the spreads, as a share of the old figure; 0.05 by default")
      ->type_name("MARGIN")
      ->check(is_margin)
      ->needs(against);
  bench.add_flag("--quiet", options.quiet, "prints no tables and no progress");
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  add_command(app, "bench", kBenchHelp, kBenchFooter, add_flags, run_bench, status);
}

}  // namespace logitless::cli
