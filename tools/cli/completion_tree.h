// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What a completion script has to know of the command line, free of the details of CLI11 and of any shell.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace logitless::cli {

/// What may follow an option, or a free argument.
struct Value {
  enum class Kind { kNone, kFile, kConfigKey, kChoice, kOther };
  Kind kind = Kind::kNone;
  std::string name;                  ///< as help prints it: FILE
  std::vector<std::string> choices;  ///< of kChoice
};

struct Flag {
  std::vector<std::string> names;  ///< with their dashes
  std::string help;
  Value value;
  bool repeatable = false;
};

struct FreeArgument {
  Value value;
  bool repeatable = false;
};

struct Command {
  std::string name;
  std::string help;
  std::vector<Flag> flags;
  std::vector<FreeArgument> free_arguments;
};

struct CommandTree {
  std::vector<Flag> flags;  ///< in place of a command: --version
  std::vector<Command> commands;
  std::vector<std::string> config_keys;  ///< each with the "=" that --set wants after it
};

/// Of what help shows: hidden commands and options are left out.
CommandTree command_tree(const CLI::App& app);

}  // namespace logitless::cli
