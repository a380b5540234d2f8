// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The `logitless` command: parses the arguments and turns what is thrown into one line and an exit status.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/child_process.h"
#include "cli/compare.h"
#include "cli/contender.h"
#include "cli/info.h"
#include "io/error.h"
#include "logitless/environment.h"
#include "logitless/error.h"

namespace logitless::cli {
namespace {

constexpr int kBadInput = 2;
constexpr int kFailure = 3;

constexpr const char* kFooter = R"(Examples:
  logitless compare configs/tiny.yaml
  logitless info
`logitless COMMAND --help` says more.)";

constexpr const char* kCompareHelp =
    "Runs the dense and the fused path on one input and compares loss, gradients, time and memory";

constexpr const char* kCompareFooter =
    R"(Each path runs in a process of its own, so that its peak memory is its own; the figure is what it took above its
inputs and outputs.

Tolerances: tolerances.loss_atol is in nats a token (times the tokens under reduction sum or none);
losses_rel_l2, d_hidden_rel_l2, d_weight_rel_l2 and d_bias_rel_l2 are relative L2 distances. dlogits_max_abs
and dlogits_max_rel belong to a check of the logits' own gradient: compare reads and checks them, and its
report lists them under gates_not_applied.

Exit status: 0 the two agree, 1 they lie apart beyond the tolerances (a NaN does too), 2 a bad option, config or
input, 3 a path's process died or ran out of memory.

Examples:
  logitless compare configs/tiny.yaml --set model.dtype=bfloat16 --json report.json
  logitless compare --hidden states.safetensors --lm-head head.safetensors --targets states.safetensors)";

constexpr const char* kInfoHelp = "Prints what runs on this machine: CPU, instruction set, BLAS, and warnings";

constexpr const char* kInfoFooter = "Example: logitless info --set threads=1";

// What every command takes.
struct ConfigFlags {
  std::string positional;
  std::string config;
  std::vector<std::string> assignments;

  void add_to(CLI::App& command) {
    auto* free_argument = command.add_option("CONFIG", positional, "a YAML config, as --config");
    command.add_option("--config", config, "a YAML config")->type_name("FILE")->excludes(free_argument);
    command
        .add_option("--set", assignments, "sets one key of the config, for example model.dtype=bfloat16; repeatable")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
  }
  std::optional<std::string> path() const {
    if (!config.empty()) return config;
    if (!positional.empty()) return positional;
    return std::nullopt;
  }
};

void add_compare(CLI::App& app, ConfigFlags& flags, CompareOptions& options) {
  CLI::App* compare = app.add_subcommand("compare", kCompareHelp);
  compare->footer(kCompareFooter);
  flags.add_to(*compare);
  TensorPaths& paths = options.tensors;
  const auto tensor = [&](const char* name, std::string& path, const char* help) {
    return compare->add_option(name, path, help)->type_name("FILE[:TENSOR]");
  };
  auto* hidden = tensor("--hidden", paths.hidden, "hidden states [N, H], safetensors");
  auto* head = tensor("--lm-head", paths.lm_head, "LM head [V, H] or [H, V], safetensors");
  auto* targets = tensor("--targets", paths.targets, "word ids [N], int32 or int64, safetensors");
  hidden->needs(head)->needs(targets);
  head->needs(hidden);
  targets->needs(hidden);
  tensor("--lengths", paths.lengths, "lengths of packed sequences, summing to N")->needs(hidden);
  tensor("--bias", paths.bias, "bias of the head [V]")->needs(hidden);
  compare->add_option("--json", options.json_path, "writes the report as one JSON object; - is standard output")
      ->type_name("FILE");
  compare->add_option("--repeat", options.repeat, "runs each contender N times, alternating, and reports medians")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  compare->add_flag("--quiet", options.quiet, "prints no table and no progress: the exit status says it");
  compare->callback([&] {
    options.config_path = flags.path();
    options.assignments = flags.assignments;
  });
}

void add_info(CLI::App& app, ConfigFlags& flags, InfoOptions& options) {
  CLI::App* info = app.add_subcommand("info", kInfoHelp);
  info->footer(kInfoFooter);
  flags.add_to(*info);
  info->add_flag("--json", options.json, "prints one JSON object");
  info->callback([&] {
    options.config_path = flags.path();
    options.assignments = flags.assignments;
  });
}

int run(int argc, char** argv) {
  CLI::App app("logitless: a language model's LM head fused with its loss, without ever holding the logits",
               "logitless");
  app.set_version_flag("--version", std::string("logitless ") + version());
  app.require_subcommand(1);
  app.footer(kFooter);
  ConfigFlags compare_flags, info_flags;
  CompareOptions compare_options;
  InfoOptions info_options;
  add_compare(app, compare_flags, compare_options);
  add_info(app, info_flags, info_options);

  int job_descriptor = -1, outcome_descriptor = -1;
  CLI::App* contender = app.add_subcommand("run-contender", "one side of a comparison; started by compare itself");
  contender->group("");
  contender->add_option("job", job_descriptor)->required();
  contender->add_option("outcome", outcome_descriptor)->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::fprintf(stderr, "logitless: %s; see logitless --help\n", e.what());
    return kBadInput;
  }
  if (contender->parsed()) return run_contender(job_descriptor, outcome_descriptor);
  return app.got_subcommand("info") ? run_info(info_options) : run_compare(compare_options);
}

int run_and_report(int argc, char** argv) {
  int status = kFailure;
  try {
    return run(argc, argv);
  } catch (const io::Error& e) {
    status = kBadInput;
    std::fprintf(stderr, "logitless: %s\n", e.what());
  } catch (const InvalidInput& e) {
    status = kBadInput;
    std::fprintf(stderr, "logitless: %s\n", e.what());
  } catch (const Interrupted& interruption) {
    // Ends as the signal would have ended it, so that a shell loop around this command stops as well.
    signal(interruption.signal, SIG_DFL);
    raise(interruption.signal);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "logitless: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "logitless: %s\n", e.what());
  }
  return status;
}

}  // namespace
}  // namespace logitless::cli

int main(int argc, char** argv) { return logitless::cli::run_and_report(argc, argv); }
