// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Flags that several commands share, and the list of commands.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/common/inputs.h"

namespace logitless::cli {

/// Which tensors a command takes.
enum class TensorFlags { kOfHead, kOfHeadAndTask, kOfAll };  // kOfAll: also finished logits
void add_tensor_flags(CLI::App& command, TensorPaths& paths, TensorFlags which);

/// Adds --set, which sets single keys of a config.
void add_set_flag(CLI::App& command, std::vector<std::string>& assignments);
/// Adds --json, which may be standard output.
void add_json_flag(CLI::App& command, std::string& path, const char* what);

/// The config of a command: its first free argument or --config, with --set for single keys.
struct ConfigFlags {
  std::string positional;
  std::string config;
  std::vector<std::string> assignments;

  void add_to(CLI::App& command);
  std::optional<std::string> path() const;
  io::Config load() const;
  /// As load(), for a call that may be split over ranks. For `swept` see load_config().
  io::Config load_with_ranks(std::span<const std::string> swept = {}) const;
};

/// Adds a command. `add_flags` declares its flags; `run` does its work and returns the exit status.
template <class Options>
void add_command(CLI::App& app, const char* name, const char* help, const char* footer,
                 void (*add_flags)(CLI::App&, Options&), int (*run)(const Options&), int& status) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand(name, help);
  command->footer(footer);
  add_flags(*command, *options);
  command->callback([=, &status] { status = run(*options); });
}

// One per command, in a folder of its own. `status` receives the exit status after the command has run.
void add_bench(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_compare_models(CLI::App& app, int& status);
void add_gradcheck(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_score(CLI::App& app, int& status);

/// Parses the arguments and runs the command. Returns its exit status, or `bad_input` after reporting a
/// mistake in the arguments.
int run_command_line(int argc, char** argv, int bad_input);

}  // namespace logitless::cli
