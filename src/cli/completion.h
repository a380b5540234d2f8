// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Completion scripts, made from the commands and options as CLI11 knows them: they cannot fall behind.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace logitless::cli {

/// "bash", "fish", "zsh".
std::vector<std::string> completion_shells();

/// A script that completes the commands of `app`, their options, file names, and config keys where an option's type is
/// KEY=.... `shell` is one of completion_shells().
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace logitless::cli
