// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/completion_tree.h"

#include <CLI/CLI.hpp>

#include "io/config_schema.h"

namespace logitless::cli {
namespace {

/// The choices of CLI::IsMember stand in the type's name: {bash,zsh}.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

Value value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  Value value{Value::Kind::kOther, type.substr(0, type.find_first_of(":[")), choices_in(type)};
  if (!value.choices.empty()) {
    value.kind = Value::Kind::kChoice;
  } else if (type.starts_with("FILE")) {
    value.kind = Value::Kind::kFile;
  } else if (type.starts_with("KEY=")) {
    value.kind = Value::Kind::kConfigKey;
  }
  return value;
}

Flag flag_of(const CLI::Option& option) {
  Flag flag{{}, option.get_description(), value_of(option), option.get_expected_max() > 1};
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  return flag;
}

std::vector<const CLI::Option*> shown_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : shown_options(app)) {
    if (option->nonpositional()) flags.push_back(flag_of(*option));
  }
  return flags;
}

std::vector<FreeArgument> free_arguments_of(const CLI::App& app) {
  std::vector<FreeArgument> arguments;
  for (const CLI::Option* option : shown_options(app)) {
    if (!option->get_positional()) continue;
    FreeArgument argument{value_of(*option), option->get_expected_max() > 1};
    argument.value.name = option->get_name(true);
    // They are files, unless their type says what they are.
    if (argument.value.kind == Value::Kind::kOther) argument.value.kind = Value::Kind::kFile;
    arguments.push_back(argument);
  }
  return arguments;
}

}  // namespace

CommandTree command_tree(const CLI::App& app) {
  CommandTree tree{flags_of(app), {}, {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); })) {
    tree.commands.push_back(
        {command->get_name(), command->get_description(), flags_of(*command), free_arguments_of(*command)});
  }
  for (const io::KeyRule& rule : io::config_schema()) tree.config_keys.push_back(rule.key + "=");
  return tree;
}

}  // namespace logitless::cli
