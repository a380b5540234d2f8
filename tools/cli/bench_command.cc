// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "cli/bench.h"
#include "cli/command.h"

namespace logitless::cli {
namespace {

constexpr const char* kBenchHelp = "Measures time and memory over a sweep of config keys";

constexpr const char* kBenchFooter =
    R"(Each point of the sweep (the product of all --sweep lists) runs in a process of its own, on seeded inputs. In it the
contenders take turns, so that whatever slows the machine down slows all of them down.
  level fused   dense, auto (the config's kernel.plan), one_pass, two_pass, forward (no gradients);
                by default dense, auto and forward
  level logits  dense (two sweeps over the logits), apart, in_place; by default all of them
time is a median, spread half the distance between the quartiles, first the first call of all. The GEMM rate is that of
one large product in the same process, and a contender's share of it counts the products that it makes itself. Extra
peak is what a call takes above its inputs and outputs (a median too).

--output gets one JSON line a point as soon as it is measured; `logitless report` draws it. Where the file is there and
holds the same benchmark, points that stand in it are not measured again, so that an interrupted run can be completed.

--against exits with 1 where a time, extra peak or workspace has grown by more than the margin times the earlier figure
plus both spreads (of memory: 256 KiB at least), or where a contender that ran fails now. Points are the same where all
of their settings agree; those that only one run has are listed.

Exit status: 0 done, 1 something grew against the earlier run, 2 a bad option, config or file, 3 there is a point at which no
contender ran.

Examples:
  logitless bench configs/tiny.yaml --sweep seq_len=64,128,256 --sweep model.dtype=float32,bfloat16 -o sweep.jsonl
  logitless report sweep.jsonl -o report.html
  logitless bench configs/tiny.yaml --sweep seq_len=64,256 --iters 9 --against sweep.jsonl)";

void add_run_flags(CLI::App& bench, BenchOptions& options) {
  bench.add_option("--sweep", options.sweep, "values that a key takes in turn; repeatable")
      ->type_name("KEY=VALUE,VALUE...")
      ->allow_extra_args(false);
  bench.add_option("--contenders", options.contenders, "who takes turns")
      ->type_name("NAME,NAME...")
      ->delimiter(',')
      ->allow_extra_args(false);
  bench.add_option("--warmup", options.warmup, "turns that are not timed, 1 by default")
      ->type_name("N")
      ->check(CLI::Range(0, 1000000));
  bench.add_option("--iters", options.iters, "timed turns, 5 by default")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  bench.add_option("--inputs", options.inputs, "random (by default) or zeros")
      ->type_name("KIND")
      ->check(CLI::IsMember({"random", "zeros"}));
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", kBenchHelp);
  bench->footer(kBenchFooter);
  const auto flags = std::make_shared<ConfigFlags>();
  const auto shared = std::make_shared<BenchOptions>();
  BenchOptions& options = *shared;
  flags->add_to(*bench);
  add_run_flags(*bench, options);
  auto* output = bench->add_option("-o,--output", options.output_path, "writes JSON Lines; - is standard output");
  output->type_name("FILE");
  bench->add_flag("--overwrite", options.overwrite, "starts FILE anew, whatever it holds")->needs(output);
  auto* against =
      bench->add_option("--against", options.against_path, "an earlier run's file to hold this run against");
  against->type_name("FILE");
  bench->add_option("--margin", options.margin, "how much may grow beyond the spreads, 0.05 by default")
      ->type_name("MARGIN")
      ->check(number_within(0, 1e6))
      ->needs(against);
  bench->add_option("--metrics", options.metrics_path, "writes {\"step\", \"name\", \"value\"} lines for trackers")
      ->type_name("FILE");
  add_profile_flag(*bench, options.profile_path);
  bench->add_flag("--quiet", options.quiet, "prints no tables and no progress");
  bench->callback([=, &action] {
    shared->config_path = flags->path();
    shared->assignments = flags->assignments;
    action = [=] { return run_bench(*shared); };
  });
}

}  // namespace logitless::cli
