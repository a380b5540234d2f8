// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a completion script has to know of the command line, free of CLI11's and any shell's details.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace logitless::cli {

/// What may follow an option or stand for a free argument.
struct Value {
  enum class Kind { kNone, kFile, kConfigKey, kChoice, kOther };
  Kind kind = Kind::kNone;
  std::string name;                  ///< as --help prints it: FILE
  std::vector<std::string> choices;  ///< of kChoice
};

struct Flag {
  std::vector<std::string> names;  ///< with their dashes
  std::string help;
  Value value;
  bool repeatable = false;
};

struct Positional {
  Value value;
  bool repeatable = false;
};

struct Command {
  std::string name;
  std::string help;
  std::vector<Flag> flags;
  std::vector<Positional> positionals;
};

/// The flags of `app` itself and the commands it lists; what --help hides is left out.
struct CommandTree {
  std::vector<Flag> flags;
  std::vector<Command> commands;
};

CommandTree command_tree(const CLI::App& app);

}  // namespace logitless::cli
