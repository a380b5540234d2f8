// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless score`: log-probabilities of tokens and sequences, from hidden states and a head, without the
// logits.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>
#include <string_view>

#include "cli/common/command_line.h"
#include "cli/common/output.h"
#include "cli/common/task_call.h"
#include "cli/measure/one_call.h"
#include "logitless/token_stats.h"

namespace logitless::cli {
namespace {

constexpr const char* kScoreHelp =
    "Writes the log-probability of each target and of each sequence to a safetensors file";

constexpr const char* kScoreFooter =
    R"(The file has, for each row of hidden, logp, argmax and argmax_logp, and rank, entropy, top_ids and top_logps if their
options are given. For each sequence it has sequence_logp, sequence_tokens and sequence_is_greedy. `man logitless-score`
explains them.

--lm-head may be a GGUF file: its head stays packed in memory, and its bias and softcap apply.

Exit status: 0 done, 2 a bad option, config or input (no file is written), 3 out of memory.

Examples:
  logitless score --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors \
      -o scores.safetensors
  logitless score configs/tiny.yaml --set temperature=0.7 -o scores.safetensors --json -)";

struct ScoreOptions {
  ConfigFlags config;
  TensorPaths tensors;
  std::string output_path;
  std::string json_path;  ///< empty: none; "-": standard output
  bool rank = false;      ///< costs a second GEMM over the head
  bool entropy = false;
  int top_k = 0;  ///< 0: the config's
  bool quiet = false;
};

// Sums over the tokens of each sequence, ignored ones left out.
struct SequenceScores {
  std::vector<double> logp;     // of all its targets together, in nats; 0 without targets, NaN if one is NaN
  std::vector<int64_t> tokens;  // not counting ignored ones
  std::vector<uint8_t> greedy;  // 1 if every target is the argmax of its row
};

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
                                           "top_k",
                                           "kernel.row_tile",
                                           "kernel.vocab_tile",
                                           "kernel.workspace",
                                           "kernel.gemm_backend",
                                           "kernel.simd_target"};
  return key.starts_with("model.") || std::find(std::begin(kApplied), std::end(kApplied), key) != std::end(kApplied);
}

// Returns the keys of the config's file that have no effect on score, which computes no loss and no gradient.
std::vector<std::string> keys_not_applied(const io::Config& config) {
  std::vector<std::string> keys;
  for (const auto& [key, place] : config.places) {
    if (!is_applied(key)) keys.push_back(key);
  }
  return keys;
}

void check_config(const io::Config& config) {
  if (!config.runs<CrossEntropy>()) {
    throw io::Error(config.place_of("task") + " is " + config.task +
                    ", but score computes no loss: leave it out or cross_entropy");
  }
  if (config.level != io::Level::kFused) {
    throw io::Error(config.place_of("level") + " is logits, but score takes hidden states and a head");
  }
  reject_by_hand(config, std::not_fn(is_applied), "has no effect on score, which computes no loss and no gradient");
}

bool is_nan_row(const TokenStats& stats, size_t row) { return std::isnan(stats.logp[row]); }
bool is_active(const TokenStats& stats, size_t row) { return stats.argmax[row] >= 0 || is_nan_row(stats, row); }

/// Returns whether the target of each row is its most likely token; false for ignored rows.
std::vector<bool> is_greedy(const TokenStats& stats, const Targets& targets, int64_t shift) {
  std::vector<bool> greedy(stats.logp.size());
  for (size_t row = 0; row < greedy.size(); ++row) {
    greedy[row] = stats.argmax[row] >= 0 && stats.argmax[row] == targets[static_cast<int64_t>(row) + shift];
  }
  return greedy;
}

SequenceScores score_sequences(const TokenStats& stats, const std::vector<bool>& greedy, const Job& job) {
  SequenceScores out;
  const auto add = [&](int64_t begin, int64_t end) {
    double logp = 0;
    int64_t tokens = 0;
    bool all = true;
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
      if (!is_active(stats, row)) continue;
      ++tokens;
      logp += stats.logp[row];
      all = all && greedy[row];
    }
    out.logp.push_back(logp);
    out.tokens.push_back(tokens);
    out.greedy.push_back(all);
  };
  const std::span<const int64_t> offsets = job["offsets"].values<int64_t>();
  for (size_t s = 0; s + 1 < offsets.size(); ++s) add(offsets[s], offsets[s + 1]);
  if (!offsets.empty()) return out;
  const int64_t length = job.tokens / std::max<int64_t>(1, job.sequences);
  for (int64_t s = 0; s < job.sequences; ++s) add(s * length, (s + 1) * length);
  return out;
}

// Computes means over the tokens that are not ignored; NaN if there are none. A token whose statistics are
// NaN makes cross-entropy and entropy NaN and counts as a wrong answer.
Json summarise(const TokenStats& stats, const std::vector<bool>& greedy, const SequenceScores& sequences,
               const StatsRequest& request) {
  int64_t tokens = 0, nan_tokens = 0, correct = 0, in_top5 = 0;
  double nll = 0, entropy = 0;
  for (size_t row = 0; row < stats.logp.size(); ++row) {
    if (!is_active(stats, row)) continue;
    ++tokens;
    nan_tokens += is_nan_row(stats, row);
    nll -= stats.logp[row];
    correct += greedy[row];
    if (request.rank) in_top5 += stats.rank[row] > 0 && stats.rank[row] <= 5;
    if (request.entropy) entropy += stats.entropy[row];
  }
  const double count = tokens > 0 ? static_cast<double>(tokens) : kNaN;
  Json json = {{"tokens", tokens},
               {"nan_tokens", nan_tokens},
               {"cross_entropy", nll / count},
               {"perplexity", std::exp(nll / count)},
               {"bits_per_token", nll / count / std::numbers::ln2},
               {"accuracy", static_cast<double>(correct) / count}};
  if (request.rank) json["top5_accuracy"] = static_cast<double>(in_top5) / count;
  if (request.entropy) json["mean_entropy"] = entropy / count;
  if (request.top_k > 0) {
    const std::vector<double> masses = top_masses(stats);  // 0 for ignored rows
    json["mean_top_mass"] = std::accumulate(masses.begin(), masses.end(), 0.0) / count;
  }
  int64_t with_tokens = 0, greedy_sequences = 0;
  for (size_t s = 0; s < sequences.tokens.size(); ++s) {
    with_tokens += sequences.tokens[s] > 0;
    greedy_sequences += sequences.tokens[s] > 0 && sequences.greedy[s];
  }
  json.update({{"sequences", with_tokens}, {"greedy_sequences", greedy_sequences}});
  return json;
}

/// Returns each row's log-probability of its most likely token: −log_sum, divided by the temperature under
/// kScaleLogp; NaN without an argmax.
std::vector<double> argmax_logps(const TokenStats& stats, const TokenOptions& options) {
  std::vector<double> logps(stats.logp.size(), kNaN);
  for (size_t row = 0; row < logps.size(); ++row) {
    if (stats.argmax[row] < 0) continue;
    double temperature = 1;
    if (options.temperature_meaning == TemperatureMeaning::kScaleLogp) {
      temperature = options.temperatures.empty() ? options.temperature : options.temperatures[row];
    }
    logps[row] = (0 - stats.log_sum[row]) / temperature;
  }
  return logps;
}

// Replaces the library's 0 for ignored rows by NaN: readers of the file would take it for a probability of 1.
void mark_ignored_rows(TokenStats& stats) {
  for (size_t row = 0; row < stats.logp.size(); ++row) {
    if (is_active(stats, row)) continue;
    stats.logp[row] = kNaN;
    if (!stats.entropy.empty()) stats.entropy[row] = kNaN;
    const size_t top_k = stats.top_logps.size() / stats.logp.size();
    std::fill_n(stats.top_logps.begin() + static_cast<ptrdiff_t>(row * top_k), top_k, kNaN);
  }
}

/// Returns a line for people about what has been written.
std::string write_scores(const std::string& path, const TokenStats& stats, const std::vector<double>& argmax_logp,
                         const SequenceScores& sequences, const StatsRequest& request) {
  const std::vector<int64_t> rows = {static_cast<int64_t>(stats.logp.size())};
  const std::vector<int64_t> count = {static_cast<int64_t>(sequences.logp.size())};
  std::vector<io::TensorToWrite> tensors = {{"logp", "F64", rows, stats.logp.data()},
                                            {"argmax", "I64", rows, stats.argmax.data()},
                                            {"argmax_logp", "F64", rows, argmax_logp.data()}};
  if (request.rank) tensors.push_back({"rank", "I64", rows, stats.rank.data()});
  if (request.entropy) tensors.push_back({"entropy", "F64", rows, stats.entropy.data()});
  if (request.top_k > 0) {
    const std::vector<int64_t> lists = {rows[0], request.top_k};
    tensors.push_back({"top_ids", "I64", lists, stats.top_ids.data()});
    tensors.push_back({"top_logps", "F64", lists, stats.top_logps.data()});
  }
  std::string written;
  for (const io::TensorToWrite& tensor : tensors) written += (written.empty() ? "" : ", ") + tensor.name;
  tensors.insert(tensors.end(), {{"sequence_logp", "F64", count, sequences.logp.data()},
                                 {"sequence_tokens", "I64", count, sequences.tokens.data()},
                                 {"sequence_is_greedy", "BOOL", count, sequences.greedy.data()}});
  io::write_safetensors(path, tensors);
  return written + " [" + std::to_string(rows[0]) + "]; sequence_logp, sequence_tokens, sequence_is_greedy [" +
         std::to_string(count[0]) + "]";
}

// Formats the summary for people.
std::string table_of(const Json& json, const std::string& head, const std::string& written) {
  std::string text = head;
  const auto line = [&](const char* name, const std::string& value) { text += format("%-16s ", name) + value + "\n"; };
  const auto figure = [&](const char* name, const char* key, const char* pattern) {
    if (!json.contains(key)) return;
    char value[64];
    std::snprintf(value, sizeof(value), pattern, number_of(json[key]));
    line(name, value);
  };
  line("tokens", json["tokens"].dump() + " of " + json["shape"]["tokens"].dump());
  if (json["nan_tokens"] != 0) line("NaN tokens", json["nan_tokens"].dump());
  figure("cross-entropy", "cross_entropy", "%.9g nats");
  figure("perplexity", "perplexity", "%.9g");
  figure("bits per token", "bits_per_token", "%.9g");
  figure("accuracy", "accuracy", "%.6f");
  figure("top-5 accuracy", "top5_accuracy", "%.6f");
  figure("mean entropy", "mean_entropy", "%.9g nats");
  figure("mean top mass", "mean_top_mass", "%.6f");
  line("sequences", json["sequences"].dump() + " (" + json["greedy_sequences"].dump() + " greedy)");
  figure("time", "time_s", "%.3f s");
  line("workspace", human_bytes(json["workspace_bytes"]));
  line("plan", json["details"]["plan"]);
  line("written", written);
  const std::vector<std::string> unused = json["keys_not_applied"];
  if (!unused.empty()) line("keys not used", joined(unused));
  return text;
}

// Returns the exit status, 0. Throws io::Error or InvalidInput; then no file has been written.
int run_score(const ScoreOptions& options) {
  const io::Config config = options.config.load();
  check_config(config);
  if (options.output_path == "-") throw io::Error("-o -: must be the name of a file");
  check_output_files({{"-o", options.output_path}, {"--json", options.json_path}},
                     input_files(options.tensors, {options.config.path().value_or("")}));

  Progress progress(!options.quiet);
  progress.phase(options.tensors.given() ? "reading the tensors" : "drawing the inputs");
  const Inputs inputs = read_inputs(config, options.tensors, SeededValues::kRandom, HeadFiles::kSafetensorsOrGguf);
  const Job& job = inputs.job;
  ContextOptions context_options = context_options_of(config);
  context_options.plan = PlanKind::kAuto;
  const Context context(context_options);
  const Environment environment = describe_environment(context);
  const TaskRun call(config, job);
  job.touch();

  progress.phase("scoring");
  const TokenOptions token_options = call.token_options();
  const StatsRequest request = {.entropy = options.entropy,
                                .argmax = true,
                                .rank = options.rank,
                                .top_k = options.top_k > 0 ? options.top_k : config.top_k};
  const TokenStatistics task = {.targets = call.targets, .token = token_options, .request = request};
  TokenStatisticsResult ran;
  const double time_s = options.tensors.naming_flags(
      [&] { return measure([&] { ran = logitless::run(context, call.source, task); }).time_s; });
  TokenStats& stats = ran.stats;
  const Plan& plan = ran.plan;
  inputs.files.check();
  const std::vector<bool> greedy = is_greedy(stats, call.targets, config.of<CrossEntropy>().token.shift);
  const SequenceScores sequences = score_sequences(stats, greedy, job);
  Json json = {{"shape", shape_json(job)}};
  json.update(summarise(stats, greedy, sequences, request));
  mark_ignored_rows(stats);
  const std::string written =
      write_scores(options.output_path, stats, argmax_logps(stats, token_options), sequences, request);
  progress.erase();

  json.update({{"time_s", time_s},
               {"workspace_bytes", plan.workspace_bytes},
               {"plan", name_of(plan.kind)},
               {"output", options.output_path},
               {"keys_not_applied", keys_not_applied(config)},
               {"details", {{"plan", plan.describe()}}},
               {"environment", environment_json(environment)}});
  if (!options.json_path.empty()) write_output("--json", options.json_path, page_of(json));
  const std::string head = shape_text("score", config.model.name, job) + "\n" + machine_text(environment) + "\n" +
                           warnings_text(environment) + "\n";
  if (!options.quiet && options.json_path != "-") print(table_of(json, head, options.output_path + ": " + written));
  return 0;
}

void add_flags(CLI::App& score, ScoreOptions& options) {
  options.config.add_to(score);
  add_tensor_flags(score, options.tensors, TensorFlags::kOfHead);
  score.add_option("-o,--output", options.output_path, "the safetensors file to write")->type_name("FILE")->required();
  add_json_flag(score, options.json_path, "summary");
  score.add_flag("--rank", options.rank, "also writes the target's rank; the logits are then computed twice");
  score.add_flag("--entropy", options.entropy, "also writes the entropy of each row's distribution");
  score
      .add_option("--top-k", options.top_k,
                  "also writes the K most likely tokens of each row and their log-probabilities, 1 to 256")
      ->type_name("K")
      ->check(CLI::Range(1, static_cast<int>(kMostTopK)));
  score.add_flag("--quiet", options.quiet, "prints no summary and no progress");
}

}  // namespace

void add_score(CLI::App& app, int& status) {
  add_command(app, "score", kScoreHelp, kScoreFooter, add_flags, run_score, status);
}

}  // namespace logitless::cli
