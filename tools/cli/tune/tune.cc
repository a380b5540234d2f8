// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/common/command_line.h"
#include "cli/common/task_call.h"
#include "cli/measure/turns.h"
#include "cli/tune/rounds.h"
#include "io/profile_file.h"
#include "logitless/context.h"
#include "report/bench_run.h"

namespace logitless::cli {
namespace {

constexpr const char* kTuneHelp = "Finds the fastest tiles and plan for this machine and a config's shape";

constexpr const char* kTuneFooter =
    R"(The profile gets an entry for this machine, and for sizes from half to twice those of the config. compare, gradcheck,
bench and score take it by --profile FILE or from the environment variable LOGITLESS_PROFILE, a C++ program by
logitless::load_profile(). `man logitless-tune` says how it is found and when it serves.

Exit status: 0 done (also where the default stays), 2 a bad option, config or file, 3 out of memory.

Examples:
  logitless tune configs/tiny.yaml -o profile.yaml
  logitless tune configs/qwen2.5-1.5b.yaml --set seq_len=1024 --budget-s 900 -o profile.yaml
  logitless compare configs/qwen2.5-1.5b.yaml --profile profile.yaml)";

struct TuneOptions {
  ConfigFlags config;
  std::string output_path;  ///< the profile; empty: nothing is written
  double budget_s = 300;    ///< about how long it may take
  bool quiet = false;
};

constexpr int kPlanTurns = 3;
constexpr double kSlowPlan = 1.1;  // times the default's time: tiles will not make up for more
const std::vector<std::string> kTunedKeys = {"kernel.plan", "kernel.row_tile", "kernel.vocab_tile"};

struct Trial : report::Measurement {
  TuneCandidate candidate;
};

// Those that ran, fastest first.
std::vector<Trial> ranked(std::vector<Trial> trials) {
  std::erase_if(trials, [](const Trial& trial) { return !trial.ok(); });
  std::stable_sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.median_s < b.median_s; });
  return trials;
}

class Tuner {
 public:
  Tuner(const TuneOptions& options, const io::Config& config)
      : options_(options), config_(config), progress_(!options.quiet) {}

  /// The default and what beats it by more than both spreads; the default twice where nothing does.
  std::pair<Trial, Trial> run() {
    const std::vector<Trial> plans = measure_with_default("plans", {{.plan = PlanKind::kTwoPass}}, kPlanTurns);
    const std::vector<TuneCandidate> candidates = candidates_for(plans);
    const TuneRounds rounds = rounds_for(plans, static_cast<int>(candidates.size()));
    if (rounds.candidates < static_cast<int>(candidates.size())) {
      progress_.note(format("the budget of %g s allows %d of %zu candidates", options_.budget_s, rounds.candidates,
                            candidates.size()));
    }
    const std::vector<Trial> trial =
        measure_with_default("trial", {candidates.begin(), candidates.begin() + rounds.candidates}, rounds.trial_turns);
    std::vector<TuneCandidate> finalists;
    for (const Trial& fast : ranked({trial.begin() + 1, trial.end()})) finalists.push_back(fast.candidate);
    finalists.resize(std::min<size_t>(finalists.size(), rounds.finalists));
    const std::vector<Trial> final = measure_with_default("final", finalists, rounds.final_turns);
    const Trial& normal = final.front();
    const Trial best = ranked(final).front();
    const bool faster = best.median_s + best.spread_s + normal.spread_s < normal.median_s;
    return {normal, faster ? best : normal};
  }

  void print(const std::string& text) {
    if (!options_.quiet && options_.output_path != "-") progress_.print(text);
  }

 private:
  std::vector<Trial> measure_with_default(const std::string& round, std::vector<TuneCandidate> candidates, int turns) {
    candidates.insert(candidates.begin(), TuneCandidate{});
    TurnsRequest request{.settings = config_.settings, .warmup = 0, .iters = turns, .gemm_rate = false};
    for (const TuneCandidate& candidate : candidates) request.contenders.push_back(candidate.contender());
    progress_.log(format("%s: %zu to compare, %d turns", round.c_str(), candidates.size(), turns));
    progress_.restart();
    const Json measured = measure_turns(std::move(request), [&](const std::string& step, double share) {
      progress_.phase(round + ": " + step, share);
    });
    progress_.erase();
    std::vector<Trial> trials;
    for (size_t i = 0; i < candidates.size(); ++i) {
      trials.push_back({report::measurement_of(measured["contenders"][i], round), candidates[i]});
    }
    if (!trials.front().ok()) {
      throw io::Error("the config does not run with its kernel keys left out: " + trials.front().error);
    }
    const std::vector<report::Measurement> measured_trials(trials.begin(), trials.end());
    print(measurements_text(round, measured_trials, &measured_trials.front(), false) + "\n");
    return trials;
  }

  std::vector<TuneCandidate> candidates_for(const std::vector<Trial>& plans) const {
    const Job shape = seeded_shape(config_);
    const auto tiles = [&](PlanKind plan) {
      return tile_candidates(config_.level, plan, shape.tokens, shape.vocab_size);
    };
    std::vector<TuneCandidate> candidates = tiles(PlanKind::kAuto);
    if (candidates.empty()) {
      throw io::Error(format("%lld tokens and %lld vocabulary entries make one small tile: there is nothing to tune",
                             static_cast<long long>(shape.tokens), static_cast<long long>(shape.vocab_size)));
    }
    const Trial &normal = plans[0], &two_pass = plans[1];
    if (!two_pass.ok() || two_pass.plan == normal.plan || two_pass.median_s > kSlowPlan * normal.median_s) {
      return candidates;
    }
    candidates.insert(candidates.begin(), two_pass.candidate);
    const std::vector<TuneCandidate> more = tiles(PlanKind::kTwoPass);
    candidates.insert(candidates.end(), more.begin(), more.end());
    return candidates;
  }

  // From what the plans took: a call, and what a process takes beside its calls.
  TuneRounds rounds_for(const std::vector<Trial>& plans, int candidates) const {
    const double call_s = plans.front().median_s,
                 gone_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    double calls_s = 0;
    for (const Trial& trial : plans) calls_s += kPlanTurns * trial.median_s;
    const double apart_s = 2 * std::max(0.0, gone_s - calls_s);
    const auto rounds = plan_rounds(call_s, options_.budget_s - gone_s - apart_s, candidates);
    if (rounds) return *rounds;
    throw io::Error(format("--budget-s %g: is too short: a call takes %s here, so at least %.0f are needed",
                           options_.budget_s, report::human_seconds(call_s).c_str(),
                           std::ceil(1.1 * (gone_s + apart_s + least_seconds(call_s)))));
  }

  const TuneOptions& options_;
  const io::Config& config_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Progress progress_;
};

io::Config read_config(const TuneOptions& options) {
  const io::Config config = options.config.load();
  const auto is_tuned = [](const std::string& key) { return std::ranges::count(kTunedKeys, key) > 0; };
  reject_by_hand(config, is_tuned, "cannot be set: tune chooses it");
  reject_by_hand(config, is_tolerance, "has no effect on tune");
  reject_by_hand(config, is_top_k, "has no effect on tune, which lists no largest logits");
  check_seeded(config);
  check_outputs(config, parts_of(config.model));
  return config;
}

// A device or a pipe takes a profile and has none.
std::vector<io::ProfileEntry> entries_in(const std::string& path) {
  std::error_code not_there;
  if (path == "-" || !std::filesystem::is_regular_file(path, not_there)) return {};
  return io::read_profile(path, "-o");
}

// Looks for the kernel keys that run a config's shape fastest on this machine. Returns the exit status.
// Throws io::Error, InvalidInput or Interrupted; then no file has changed.
int run_tune(const TuneOptions& options) {
  const io::Config config = read_config(options);
  if (options.quiet && options.output_path.empty()) throw io::Error("--quiet needs -o FILE: nothing would be told");
  check_output_files({{"-o", options.output_path}}, {{"the config", options.config.path().value_or("")}});
  entries_in(options.output_path);  // throws now what it would throw after the work
  const Context context(context_options_of(config));
  const Job shape = seeded_shape(config);

  Tuner tuner(options, config);
  const Environment environment = describe_environment(context);
  tuner.print(machine_text(environment) + "\n" + warnings_text(environment) +
              shape_text(io::name_of(config.task), config.model.name, shape) + "\n\n");
  const auto [normal, best] = tuner.run();

  io::ProfileEntry entry =
      io::entry_for(io::machine_of(context), profile_shape(config, shape), context.options().workspace_bytes);
  entry.plan = best.candidate.plan;
  entry.row_tile = best.candidate.row_tile;
  entry.vocab_tile = best.candidate.vocab_tile;
  entry.task = io::name_of(config.task);
  entry.default_s = normal.median_s;
  entry.tuned_s = best.median_s;
  // Another tune may have written the file meanwhile.
  std::vector<io::ProfileEntry> entries = entries_in(options.output_path);
  std::erase_if(entries, [&](const io::ProfileEntry& old) { return entry.replaces(old); });
  entries.push_back(entry);

  tuner.print(best.candidate == normal.candidate
                  ? "nothing is faster than the default by more than the spreads\n"
                  : best.candidate.name() + ": " + report::time_ratio(best.median_s / normal.median_s) +
                        " the default's time\n");
  if (options.output_path.empty()) return 0;
  write_output("-o", options.output_path, io::profile_text(entries));
  tuner.print("written " + options.output_path + "; compare, gradcheck, bench and score take it by --profile\n");
  return 0;
}

void add_flags(Command& tune, TuneOptions& options) {
  options.config.add_to(tune);
  tune.value("-o,--output", options.output_path, "FILE",
             "the profile to write, or to add to where it is there; - is standard output");
  tune.value("--budget-s", options.budget_s, "SECONDS", "about how many seconds it may take, 300 by default")
      .within(1.0, 1e6);
  tune.flag("--quiet", options.quiet, "prints no tables and no progress");
}

}  // namespace

void add_tune(CommandLine& line) { line.add("tune", kTuneHelp, kTuneFooter, add_flags, run_tune); }

}  // namespace logitless::cli
