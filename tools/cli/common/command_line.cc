// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/command_line.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "cli/common/output.h"
#include "io/config_value.h"
#include "io/error.h"
#include "logitless/environment.h"

namespace logitless::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  logitless compare configs/tiny.yaml
  logitless bench configs/tiny.yaml --sweep seq_len=64,128,256 -o sweep.jsonl
  logitless gradcheck configs/tiny.yaml
  logitless score configs/tiny.yaml -o scores.safetensors
  logitless info
`logitless COMMAND --help` prints a command's options.)";

// An empty file name is an error: an unset variable of a script does not mean "no file".
void refuse_empty_names(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (!option->get_type_name().starts_with("FILE") && !option->get_positional()) continue;
      option->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; });
    }
  }
}

// Returns "--hiden is not an option; did you mean --hidden?" for the first option among leftover words, or ""
// if there is none or no name is close.
std::string misspelt_option(const CLI::App& app, const std::vector<std::string>& words) {
  const auto word = std::ranges::find_if(words, [](const std::string& w) { return w.starts_with("--"); });
  if (word == words.end()) return "";
  const CLI::App& of = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : of.get_options()) names.push_back(option->get_name());
  const std::string name = word->substr(0, word->find('=')), near = io::suggestion_among(names, name);
  return near.empty() ? "" : name + " is not an option" + near;
}

}  // namespace

void add_tensor_flags(CLI::App& command, TensorPaths& paths, TensorFlags which) {
  const bool with_logits = which == TensorFlags::kOfAll;
  const auto option = [&](const char* name) { return command.get_option(name); };
  for (const TensorFlag& f : tensor_flags()) {
    if (f.name == "logits" ? !with_logits : which == TensorFlags::kOfHead && !f.of_head()) continue;
    CLI::Option* const added = command.add_option(flag_of(f.name), paths.specs[f.name], f.help_text());
    added->type_name(f.names);
    if (!f.of_head()) added->needs(option("--targets"));
  }
  CLI::Option* const hidden = option("--hidden");
  hidden->needs(option("--lm-head"))->needs(option("--targets"));
  for (const char* name : {"--lm-head", "--lengths", "--bias", "--lora", "--vocab-ids"}) option(name)->needs(hidden);
  if (with_logits) {
    hidden->excludes(option("--logits"));
  } else {
    option("--targets")->needs(hidden);
  }
}

void add_set_flag(CLI::App& command, std::vector<std::string>& assignments) {
  command
      .add_option("--set", assignments, "sets one key of the config, for example model.dtype=bfloat16; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_json_flag(CLI::App& command, std::string& path, const char* what) {
  command.add_option("--json", path, std::string("writes the ") + what + " as one JSON object; - is standard output")
      ->type_name("FILE");
}

void ConfigFlags::add_to(CLI::App& command) {
  CLI::Option* const free_argument = command.add_option("CONFIG", positional, "a YAML config; the same as --config");
  command.add_option("--config", config, "a YAML config")->type_name("FILE")->excludes(free_argument);
  add_set_flag(command, assignments);
}

std::optional<std::string> ConfigFlags::path() const {
  if (!config.empty()) return config;
  if (!positional.empty()) return positional;
  return std::nullopt;
}

io::Config ConfigFlags::load_with_ranks(std::span<const std::string> swept) const try {
  return io::load_config(path(), assignments, swept);
} catch (const io::Error& e) {
  if (config.empty() || !std::string_view(e.what()).starts_with(config + ":")) throw;
  throw io::Error("--config " + std::string(e.what()));
}

io::Config ConfigFlags::load() const {
  io::Config config = load_with_ranks();
  reject_ranks(config);
  return config;
}

int run_command_line(int argc, char** argv, int bad_input) {
  CLI::App app("logitless: a language model's LM head fused with its loss, without holding all logits in memory",
               "logitless");
  app.set_help_flag("-h,--help", "prints this help");
  app.set_version_flag("--version", std::string("logitless ") + version(), "prints the library's version");
  app.require_subcommand(1);
  app.footer(kFooter);
  int status = 0;
  for (const auto add : {add_bench, add_compare, add_compare_models, add_gradcheck, add_score, add_info}) {
    add(app, status);
  }
  refuse_empty_names(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    status = app.exit(e, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& e) {
    // CLI11 counts a word that is not a command as left over.
    const std::vector<std::string> words = app.remaining(true);
    const bool unknown = app.get_subcommands().empty() && !words.empty();
    std::string why = misspelt_option(app, words);
    if (why.empty()) why = unknown ? words.front() + " is not a command" : e.what();
    complain(why + "; see logitless --help");
    return bad_input;
  }
  print("");  // fails if an earlier print failed
  return status;
}

}  // namespace logitless::cli
