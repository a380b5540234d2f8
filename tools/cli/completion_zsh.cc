// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/completion_script.h"

namespace logitless::cli {
namespace {

constexpr const char* kHead = R"(#compdef logitless
# Completes logitless in zsh: source <(logitless completion zsh), or a file _logitless in a folder of $fpath
)";

constexpr const char* kTail = R"(if [[ $funcstack[1] == _logitless ]]; then
  _logitless "$@"
else
  compdef _logitless logitless
fi
)";

/// Text inside a specification of _arguments or _describe.
std::string plain(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"}) text = replaced(text, special, std::string("\\") + special);
  return text;
}

std::string action(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kFile:
      return "_files";
    case Value::Kind::kConfigKey:
      return "_logitless_keys";
    case Value::Kind::kChoice:
      return "(" + joined(value.choices) + ")";
    case Value::Kind::kNone:
    case Value::Kind::kOther:
      break;
  }
  return " ";  // a message, nothing to choose
}

std::string message_and_action(const Value& value) { return ":" + plain(value.name) + ":" + action(value); }

/// One specification a name: '(-o --output)--output=[the file to write]:FILE:_files'.
std::vector<std::string> specifications(const std::vector<Flag>& flags) {
  std::vector<std::string> all;
  for (const Flag& flag : flags) {
    const bool has_value = flag.value.kind != Value::Kind::kNone;
    for (const std::string& name : flag.names) {
      std::string one = (flag.repeatable ? "*" : "(" + joined(flag.names) + ")") + name;
      if (has_value) one += name.starts_with("--") ? "=" : "+";
      one.append("[").append(plain(flag.help)).append("]");
      if (has_value) one += message_and_action(flag.value);
      all.push_back(single_quoted(one));
    }
  }
  return all;
}

std::string branch_of(const Command& command) {
  std::vector<std::string> all = specifications(command.flags);
  for (const FreeArgument& argument : command.free_arguments) {
    all.push_back(single_quoted((argument.repeatable ? "*" : "") + message_and_action(argument.value)));
  }
  return "    " + command.name + ")\n      _arguments \\\n        " + joined(all, " \\\n        ") + " ;;\n";
}

}  // namespace

std::string zsh_completion(const CommandTree& tree) {
  std::vector<std::string> commands, first_words = specifications(tree.flags);
  for (const Command& command : tree.commands) {
    commands.push_back(single_quoted(plain(command.name) + ":" + plain(command.help)));
  }
  first_words.push_back("'1:command:_logitless_commands'");
  first_words.push_back("'*::argument:->argument'");

  std::string script = kHead;
  script += "_logitless_keys() {\n  compadd -S '' -- " + joined(tree.config_keys) + "\n}\n";
  script += "_logitless_commands() {\n  local -a commands=(\n    " + joined(commands, "\n    ") +
            ")\n  _describe command commands\n}\n";
  script += "_logitless() {\n  local curcontext=$curcontext state line\n";
  script += "  _arguments -C \\\n    " + joined(first_words, " \\\n    ") + " && return\n";
  script += "  case $words[1] in\n";
  for (const Command& command : tree.commands) script += branch_of(command);
  return script + "  esac\n}\n" + kTail;
}

}  // namespace logitless::cli
