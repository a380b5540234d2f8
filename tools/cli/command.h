// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A command is one function that adds itself to the command line; <name>_command.cc holds its flags and help.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/inputs.h"
#include "logitless/blas.h"

namespace logitless::cli {

/// What the command line asks for, once it has been parsed. Returns the exit status.
using Action = std::function<int()>;

void add_bench(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_gradcheck(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action, const BlasKernels& blas);
void add_report(CLI::App& app, Action& action);
void add_score(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);

/// --set, for single keys of a config.
void add_set_flag(CLI::App& command, std::vector<std::string>& assignments);

/// A check of a number from low to high, which NaN is not.
CLI::Validator number_within(double low, double high);

/// --profile.
void add_profile_flag(CLI::App& command, std::string& path);

/// The config that a command takes: as its first free argument or by --config, and --set for single keys.
struct ConfigFlags {
  std::string positional;
  std::string config;
  std::vector<std::string> assignments;

  void add_to(CLI::App& command);
  std::optional<std::string> path() const;
};

/// --hidden, --lm-head, --targets, --lengths and --bias.
void add_head_flags(CLI::App& command, TensorPaths& paths);
/// The same and whatever else a task reads from safetensors.
void add_tensor_flags(CLI::App& command, TensorPaths& paths);

}  // namespace logitless::cli
