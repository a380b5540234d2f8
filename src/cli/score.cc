// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/score.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <numbers>
#include <string_view>

#include "cli/measure.h"
#include "cli/output_file.h"
#include "cli/profile_flag.h"
#include "cli/progress.h"
#include "cli/report_text.h"
#include "cli/score_report.h"
#include "cli/task_call.h"
#include "logitless/token_stats.h"

namespace logitless::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_applied(const std::string& key) {
  constexpr std::string_view kApplied[] = {"task",
                                           "level",
                                           "batch_size",
                                           "seq_len",
                                           "seed",
                                           "threads",
                                           "ignore_index",
                                           "ignored_fraction",
                                           "temperature",
                                           "temperature_meaning",
                                           "round_logits_to",
                                           "shift",
                                           "kernel.block_size",
                                           "kernel.time_block",
                                           "kernel.workspace",
                                           "kernel.gemm_backend",
                                           "kernel.simd_target"};
  return key.starts_with("model.") || std::find(std::begin(kApplied), std::end(kApplied), key) != std::end(kApplied);
}

// A config serves every command, but who sets a key by hand expects something of it.
void check_config(const io::Config& config) {
  if (config.task != io::Task::kCrossEntropy) {
    throw io::Error(config.place_of("task") + " is " + name_of(config.task) +
                    ", but score computes no loss: leave it out or cross_entropy");
  }
  if (config.level != io::Level::kFused) {
    throw io::Error(config.place_of("level") + " is logits, but score takes hidden states and a head");
  }
  for (const auto& [key, place] : config.places) {
    if (place.starts_with("--set ") && !is_applied(key)) {
      throw io::Error(config.place_of(key) + " has no effect on score, which computes no loss and no gradient");
    }
  }
}

bool takes_part(const TokenStats& stats, size_t row) { return stats.rank[row] > 0 || std::isnan(stats.logp[row]); }

ScoreSummary summarise(const TokenStats& stats, const Targets& targets, bool shift) {
  ScoreSummary sum;
  for (size_t row = 0; row < stats.logp.size(); ++row) {
    if (!takes_part(stats, row)) continue;
    ++sum.tokens;
    sum.nan_tokens += stats.rank[row] == 0;
    sum.cross_entropy -= stats.logp[row];
    sum.accuracy += stats.argmax[row] == targets[static_cast<int64_t>(row) + shift];
    sum.top5_accuracy += stats.rank[row] > 0 && stats.rank[row] <= 5;
    sum.mean_entropy += stats.entropy[row];
  }
  const double tokens = sum.tokens > 0 ? static_cast<double>(sum.tokens) : kNaN;
  for (double* mean : {&sum.cross_entropy, &sum.accuracy, &sum.top5_accuracy, &sum.mean_entropy}) *mean /= tokens;
  sum.perplexity = std::exp(sum.cross_entropy);
  sum.bits_per_token = sum.cross_entropy / std::numbers::ln2;
  return sum;
}

// The library's 0 of a row that takes no part would be a probability of 1 to whoever reads the file.
void mark_rows_without_part(TokenStats& stats) {
  for (size_t row = 0; row < stats.logp.size(); ++row) {
    if (!takes_part(stats, row)) stats.logp[row] = stats.entropy[row] = kNaN;
  }
}

void write_scores(const std::string& path, const TokenStats& stats) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(stats.logp.size())};
  const std::vector<io::TensorToWrite> tensors = {{"logp", "F64", shape, stats.logp.data()},
                                                  {"entropy", "F64", shape, stats.entropy.data()},
                                                  {"rank", "I64", shape, stats.rank.data()},
                                                  {"argmax", "I64", shape, stats.argmax.data()}};
  io::write_safetensors(path, tensors);
}

}  // namespace

std::vector<std::string> keys_not_applied(const io::Config& config) {
  std::vector<std::string> keys;
  for (const auto& [key, place] : config.places) {
    if (!is_applied(key)) keys.push_back(key);
  }
  return keys;
}

int run_score(const ScoreOptions& options) {
  ScoreReport report;
  report.config = io::load_config(options.config_path, options.assignments);
  check_config(report.config);
  if (options.output_path == "-") throw io::Error("-o -: must be the name of a file");
  const Profile profile(options.profile_path);
  check_output_files({{"-o", options.output_path}, {"--json", options.json_path}},
                     input_files(options.tensors, profile, {options.config_path.value_or("")}));
  report.output_path = options.output_path;

  Progress progress(!options.quiet);
  progress.phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  const Inputs inputs =
      options.tensors.given() ? read_inputs(report.config, options.tensors) : make_seeded_inputs(report.config);
  report.job = inputs.job;
  progress.note(profile.apply(report.job, report.config));
  ContextOptions context_options = context_options_of(report.config);
  context_options.plan = PlanKind::kAuto;
  const Context context(context_options);
  report.environment = describe_environment(context);
  const JobTensors tensors(report.job);
  const TaskCall call(report.config, report.job, tensors);
  tensors.touch();

  progress.phase("scoring");
  TokenStats stats;
  report.time_s = measure([&] {
                    stats = compute_token_stats(context, call.hidden, call.head, call.targets, call.token_options(),
                                                {.entropy = true, .argmax = true, .rank = true}, &report.plan);
                  }).time_s;
  report.summary = summarise(stats, call.targets, report.config.shift);
  mark_rows_without_part(stats);
  write_scores(options.output_path, stats);
  progress.stop();

  if (!options.json_path.empty()) write_output("--json", options.json_path, dump(json_of(report)));
  if (!options.quiet && options.json_path != "-") std::fputs(table_of(report).c_str(), stdout);
  return 0;
}

}  // namespace logitless::cli
