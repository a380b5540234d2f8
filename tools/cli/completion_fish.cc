// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/completion_script.h"

namespace logitless::cli {
namespace {

constexpr const char* kHead = R"(# Completes logitless in fish: logitless completion fish | source
complete -c logitless -f
)";

std::string fish_quoted(const std::string& text) { return single_quoted(replaced(text, "\\", "\\\\")); }

/// Options of `complete` that say what may stand here.
std::string candidates(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kFile:
      return " -F";
    case Value::Kind::kConfigKey:
      return " -a \"$keys\"";
    case Value::Kind::kChoice:
      return " -a " + fish_quoted(joined(value.choices));
    case Value::Kind::kNone:
    case Value::Kind::kOther:
      break;
  }
  return "";
}

std::string lines_of(const std::vector<Flag>& flags, const std::string& when) {
  std::string lines;
  for (const Flag& flag : flags) {
    lines += when;
    for (const std::string& name : flag.names) {
      lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (flag.value.kind != Value::Kind::kNone) lines += flag.value.kind == Value::Kind::kFile ? " -r" : " -x";
    lines += candidates(flag.value) + " -d " + fish_quoted(flag.help) + "\n";
  }
  return lines;
}

}  // namespace

std::string fish_completion(const CommandTree& tree) {
  const std::string first = "complete -c logitless -n __fish_use_subcommand";
  std::string script = kHead;
  script += "set -l keys " + joined(tree.config_keys) + "\n" + lines_of(tree.flags, first);
  for (const Command& command : tree.commands) {
    const std::string inside = "complete -c logitless -n '__fish_seen_subcommand_from " + command.name + "'";
    script += first + " -a " + command.name + " -d " + fish_quoted(command.help) + "\n";
    script += lines_of(command.flags, inside);
    for (const FreeArgument& argument : command.free_arguments) script += inside + candidates(argument.value) + "\n";
  }
  return script;
}

}  // namespace logitless::cli
