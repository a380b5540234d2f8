// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless compare`: runs two contenders on the same input and compares their results.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/common/gates.h"
#include "cli/common/task_call.h"
#include "cli/compare/comparison.h"
#include "cli/measure/one_call.h"

namespace logitless::cli {
namespace {

constexpr const char* kCompareHelp =
    "Runs the dense and the fused path on one input and compares loss, gradients, time and memory";

constexpr const char* kCompareFooter =
    R"(Exit status: 0 the two agree, 1 they differ by more than the tolerances or by a NaN, 2 a bad option, config or input,
3 a path or rank ran out of memory or died. `man logitless-compare` explains what is compared.

Examples:
  logitless compare configs/tiny.yaml --set model.dtype=bfloat16 --json report.json
  logitless compare --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors
  mpirun -n 4 logitless compare configs/tiny.yaml --set parallel.vocab=2 --set parallel.data=2)";

std::string threads_text(const Json& threads) { return threads.dump() + (threads == 1 ? " thread" : " threads"); }

// Returns one line per rank.
std::string ranks_text(const Json& each) {
  TextTable table({"rank", "vocab", "tokens", "tensors", "extra peak", "time", "forward alone", "vocab exchanges",
                   "sent", "data exchanges", "sent"});
  for (const Json& rank : each) {
    const Json &vocab = rank["vocab_exchanges"], &data = rank["data_exchanges"];
    table.add({rank["rank"].dump(), rank["vocab"].dump(), rank["tokens"].dump(), human_bytes(rank["tensor_bytes"]),
               human_bytes(rank["extra_peak_bytes"]), human_seconds(rank["time_s"]),
               human_seconds(rank["forward_alone_s"]), human_seconds(vocab["time_s"]), human_bytes(vocab["bytes_sent"]),
               human_seconds(data["time_s"]), human_bytes(data["bytes_sent"])});
  }
  return table.text() + "exchanges: their time, waiting included, and the bytes sent to other ranks\n\n";
}

std::string header_of(const Json& report, const std::string& model) {
  const Environment environment = environment_of(report["environment"]);
  std::string text = shape_text(report["task"], model, report["shape"]) + ", gradients in " +
                     report["details"]["gradient_dtype"].get<std::string>() + "\n" + machine_text(environment);
  const size_t runs = report["details"].contains("fused_times_s") ? report["details"]["fused_times_s"].size()
                                                                  : report["details"]["ranks_times_s"].size();
  if (runs > 1) text += format(", medians of %zu runs each", runs);
  if (report.contains("parallel")) {
    text += format("\n%zu ranks, %s each: parallel.vocab = %d, parallel.data = %d", report["ranks"]["each"].size(),
                   threads_text(report["ranks"]["threads"]).c_str(), report["parallel"]["vocab"].get<int>(),
                   report["parallel"]["data"].get<int>());
  }
  return text + "\n" + warnings_text(environment) + "\n";
}

// Formats the report for people.
std::string text_of(const Json& report, const std::string& model) {
  const bool over_ranks = report.contains("parallel");
  const std::string first = over_ranks ? "one_process" : "dense", second = over_ranks ? "ranks" : "fused";
  const std::string shown = over_ranks ? "one process" : "dense";
  const Json& details = report["details"];
  TextTable contenders({"", "loss", "time", "extra peak", "workspace", "plan"});
  for (const std::string& name : {first, second}) {
    const Json& each = report[name];
    contenders.add({name == first ? shown
                    : over_ranks  ? "ranks, at most"
                                  : second,
                    format("%.9g", number_of(each["loss"])), human_seconds(each["time_s"]),
                    human_bytes(each["extra_peak_bytes"]), human_bytes(each["workspace_bytes"]),
                    details[name + "_plan"]});
  }
  std::string text = header_of(report, model) + contenders.text();
  if (details["extra_peak_method"] != describe(PeakMethod::kReset))
    text += "extra peak: " + details["extra_peak_method"].get<std::string>() + "\n";
  text += "\n";
  if (over_ranks) text += ranks_text(report["ranks"]["each"]);
  for (const auto& [name, value] : details[first + "_metrics"].items()) {
    if (std::isnan(number_of(value))) continue;
    text += format("%-18s %s %.9g, %s %.9g\n", name.c_str(), shown.c_str(), number_of(value), second.c_str(),
                   number_of(details[second + "_metrics"][name]));
  }
  text += "\n" + gates_text("difference", report["gates"]);
  // Sampled gradients have no gate unless the config sets one, but their differences are shown.
  const auto is_gated = [&](const std::string& key) {
    const Json& gates = report["gates"];
    return std::any_of(gates.begin(), gates.end(), [&](const Json& gate) { return gate["name"] == key; });
  };
  for (const char* key : {"d_hidden_rel_l2", "d_weight_rel_l2", "d_hidden_max_abs", "losses_max_abs"}) {
    const Json value = report["diff"].value(key, Json());
    if (!value.is_null() && !is_gated(key)) text += format("%-18s %14.3e\n", key, number_of(value));
  }
  text += not_applied_text(report["gates_not_applied"],
                           "not compared here: it belongs to gradcheck or to an output not asked for");
  const std::string threads = over_ranks ? ", " + threads_text(report[first]["threads"]) : "";
  const auto ratio_of = [&](const char* key) { return number_of(report[second][key]) / number_of(report[first][key]); };
  text += format("\n%s / %s%s: time %.3f, extra peak memory %.3g\n", second.c_str(), shown.c_str(), threads.c_str(),
                 ratio_of("time_s"), ratio_of("extra_peak_bytes"));
  return text + shown + " and " + second + (report["pass"] ? " agree\n" : " DISAGREE\n");
}

// Writes the report. Returns the exit status: 0 agreement, 1 not.
int tell(const CompareOptions& options, const io::Config& config, const Json& report, Progress& progress) {
  progress.erase();
  if (!options.json_path.empty()) write_output("--json", options.json_path, page_of(report));
  if (!options.quiet && options.json_path != "-") print(text_of(report, config.model.name));
  return report["pass"] ? 0 : 1;
}

void check_outputs_of(const CompareOptions& options) {
  check_output_files(
      {{"-o", options.output_path}, {"--dense-output", options.dense_path}, {"--json", options.json_path}},
      input_files(options.tensors, {options.config.path().value_or("")}));
}

// Runs on each rank that mpirun started; rank 0 writes the report.
int run_on_rank(const CompareOptions& options, const io::Config& config) try {
  const std::unique_ptr<RankGrid> grid = begin_ranks(config.parallel);
  grid->together([&] {
    if (grid->is_root()) check_outputs_of(options);
  });
  Progress progress(grid->is_root() && !options.quiet);
  const Json report = compare_contenders(options, config, *grid,
                                         [&](const std::string&, const std::string& step) { progress.phase(step); });
  int status = 0;
  grid->together([&] {
    if (grid->is_root()) status = tell(options, config, report, progress);
  });
  return status;
} catch (const RankEnds&) {
  return 0;
}

// Returns the exit status. Throws io::Error, InvalidInput, ChildFailure.
int run_compare(const CompareOptions& options) {
  const io::Config config = options.config.load_with_ranks();
  if (config.level == io::Level::kLogits) {
    throw io::Error(config.place_of("level") + " is logits: compare works on hidden states and a head");
  }
  reject_by_hand(config, is_top_k, "has no effect on compare, which lists no largest logits");
  if (options.output_path == "-") throw io::Error("-o -: must be the name of a file");
  if (options.dense_path == "-") throw io::Error("--dense-output -: must be the name of a file");
  if (config.parallel.ranks() > 1) return run_on_rank(options, config);
  check_outputs_of(options);
  const Context context(context_options_of(config));  // throws here what it would throw in the child
  Progress progress(!options.quiet);
  RankGrid one_process;
  const Outcome outcome =
      run_apart([&](const OnTurn& on_turn) { return compare_contenders(options, config, one_process, on_turn); },
                [&](const std::string& step) { progress.phase(step); });
  if (outcome.bad_input) throw io::Error(outcome.why);
  if (outcome.result.empty()) {
    const std::string subject = outcome.contender.empty() ? "the" : "the " + outcome.contender;
    throw ChildFailure(subject + " process " + (outcome.died ? "" : "failed: ") + outcome.why);
  }
  return tell(options, config, Json::parse(outcome.result), progress);
}

void add_flags(CLI::App& compare, CompareOptions& options) {
  options.config.add_to(compare);
  add_tensor_flags(compare, options.tensors, TensorFlags::kOfHeadAndTask);
  compare
      .add_option("-o,--output", options.output_path, "writes loss and gradients of the fused path, or of the ranks")
      ->type_name("FILE");
  compare
      .add_option("--dense-output", options.dense_path,
                  "writes loss and gradients of the dense path, or of the single process")
      ->type_name("FILE");
  add_json_flag(compare, options.json_path, "report");
  compare.add_option("--repeat", options.repeat, "runs each path N times, alternating, and reports medians")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  compare.add_flag("--quiet", options.quiet, "prints no table and no progress; the exit status has the result");
}

}  // namespace

void add_compare(CLI::App& app, int& status) {
  add_command(app, "compare", kCompareHelp, kCompareFooter, add_flags, run_compare, status);
}

}  // namespace logitless::cli
