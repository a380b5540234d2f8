// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A command is one function that adds itself to the command line; <name>_command.cc holds its flags and help.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace logitless::cli {

/// What the command line asks for, once it has been parsed. Returns the exit status.
using Action = std::function<int()>;

void add_compare(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);

/// The config that every command takes: as its first free argument or by --config, and --set for single keys.
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

}  // namespace logitless::cli
