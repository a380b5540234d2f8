// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/completion_script.h"
#include "cli/output_file.h"

namespace logitless::cli {
namespace {

constexpr const char* kCompletionHelp = "Prints a script that completes commands, options, config keys and files";

constexpr const char* kCompletionFooter = R"(Examples, each a line for the file that the shell reads at its start:
  bash, ~/.bashrc:                   source <(logitless completion bash)
  zsh, ~/.zshrc, behind compinit:    source <(logitless completion zsh)
  fish, ~/.config/fish/config.fish:  logitless completion fish | source)";

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  const std::map<std::string, std::function<std::string(const CommandTree&)>> scripts = {
      {"bash", bash_completion}, {"fish", fish_completion}, {"zsh", zsh_completion}};
  CLI::App* completion = app.add_subcommand("completion", kCompletionHelp);
  completion->footer(kCompletionFooter);
  const auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "the shell to make it for")
      ->required()
      ->type_name("{bash,fish,zsh}")
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "fish", "zsh"}).description(""));
  completion->callback([=, &app, &action] {
    action = [=, &app] {
      print(scripts.at(*shell)(command_tree(app)));
      return 0;
    };
  });
}

}  // namespace logitless::cli
