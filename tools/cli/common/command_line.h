// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The flags of commands: CLI11's, and those that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/common/inputs.h"

namespace logitless::cli {

/// Whose tensors a command takes.
enum class TensorFlags { kOfHead, kOfHeadAndTask, kOfAll };  // kOfAll: finished logits, too
void add_tensor_flags(CLI::App& command, TensorPaths& paths, TensorFlags which);

/// --set, for single keys of a config.
void add_set_flag(CLI::App& command, std::vector<std::string>& assignments);
/// -o, which names a file, and --json, which may be standard output.
void add_json_flag(CLI::App& command, std::string& path, const char* what);

/// The config that a command takes: as its first free argument or by --config, and --set for single keys.
struct ConfigFlags {
  std::string positional;
  std::string config;
  std::vector<std::string> assignments;

  void add_to(CLI::App& command);
  std::optional<std::string> path() const;
  io::Config load() const;
  /// The same, of a call that may be split over ranks; `swept` as load_config() takes them.
  io::Config load_with_ranks(std::span<const std::string> swept = {}) const;
};

/// Adds a command: `add_flags` declares its flags, and `run` does its work and returns the exit status.
template <class Options>
void add_command(CLI::App& app, const char* name, const char* help, const char* footer,
                 void (*add_flags)(CLI::App&, Options&), int (*run)(const Options&), int& status) {
  const auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand(name, help);
  command->footer(footer);
  add_flags(*command, *options);
  command->callback([=, &status] { status = run(*options); });
}

// One per command, in a folder of its own. `status` is set to the exit status once the command has run.
void add_bench(CLI::App& app, int& status);
void add_compare(CLI::App& app, int& status);
void add_compare_models(CLI::App& app, int& status);
void add_gradcheck(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_score(CLI::App& app, int& status);

/// Parses and runs what was asked for. Returns the exit status; `bad_input` is that of a mistake, which has
/// been told.
int run_command_line(int argc, char** argv, int bad_input);

}  // namespace logitless::cli
