// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <map>

#include "cli/completion_script.h"

namespace logitless::cli {
namespace {

constexpr const char* kHead = R"(# Completes logitless in bash: source <(logitless completion bash)
_logitless() {
  COMPREPLY=()
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} kind= words=
  # Readline cuts words at "=" and ":": --set=KEY is three words. Behind KEY= or FILE: there is nothing to offer.
  if [[ $cur == "=" ]]; then
    cur=
    [[ $prev == -* ]] || return 0
  elif [[ $prev == "=" ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $prev == -* ]] || return 0
  fi
  [[ $cur == ":" || $prev == ":" ]] && return 0
)";

constexpr const char* kTail = R"(  case $kind in
    file) compopt -o default ;;
    key) compopt -o nospace ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _logitless logitless
)";

/// Assignments that say what may stand here.
std::string assignments(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kFile:
      return "kind=file";
    case Value::Kind::kConfigKey:
      return "kind=key words=$keys";
    case Value::Kind::kChoice:
      return "kind=choice words=" + single_quoted(joined(value.choices));
    case Value::Kind::kNone:
    case Value::Kind::kOther:
      break;
  }
  return "kind=other";
}

std::string branch_of(const Command& command) {
  std::map<std::string, std::vector<std::string>> flags_before;
  for (const Flag& flag : command.flags) {
    if (flag.value.kind == Value::Kind::kNone) continue;
    std::vector<std::string>& names = flags_before[assignments(flag.value)];
    names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  std::string text = "      " + command.name + ")\n        case $prev in\n";
  for (const auto& [value, names] : flags_before) text += "          " + joined(names, " | ") + ") " + value + " ;;\n";
  text += "          *)\n            if [[ $cur == -* ]]; then\n              words=" +
          single_quoted(joined(names_of(command.flags))) + "\n";
  if (!command.free_arguments.empty()) {
    text += "            else\n              " + assignments(command.free_arguments.front().value) + "\n";
  }
  return text + "            fi\n            ;;\n        esac\n        ;;\n";
}

}  // namespace

std::string bash_completion(const CommandTree& tree) {
  std::vector<std::string> first_words = names_of(tree.flags);
  for (const Command& command : tree.commands) first_words.push_back(command.name);

  std::string script = kHead;
  script += "  local keys=" + single_quoted(joined(tree.config_keys)) + "\n";
  script += "  if ((COMP_CWORD == 1)); then\n    words=" + single_quoted(joined(first_words)) + "\n  else\n";
  script += "    case ${COMP_WORDS[1]} in\n";
  for (const Command& command : tree.commands) script += branch_of(command);
  return script + "    esac\n  fi\n" + kTail;
}

}  // namespace logitless::cli
