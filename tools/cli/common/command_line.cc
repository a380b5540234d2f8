// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "cli/common/command_line.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <string_view>

#include "cli/common/output.h"
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
`logitless COMMAND --help` says more.)";

void add_tensors(CLI::App& command, TensorPaths& paths, bool of_head_alone, bool with_logits) {
  const auto option = [&](const char* name) { return command.get_option(name); };
  for (const TensorFlag& f : tensor_flags()) {
    if (f.name == "logits" ? !with_logits : of_head_alone && !f.of_head()) continue;
    CLI::Option* const added = command.add_option(flag_of(f.name), paths.specs[f.name], f.help_text());
    added->type_name(f.names);
    if (!f.of_head()) added->needs(option("--targets"));
  }
  CLI::Option* hidden = option("--hidden");
  hidden->needs(option("--lm-head"))->needs(option("--targets"));
  for (const char* name : {"--lm-head", "--lengths", "--bias", "--lora", "--vocab-ids"}) option(name)->needs(hidden);
  if (with_logits) {
    hidden->excludes(option("--logits"));
  } else {
    option("--targets")->needs(hidden);
  }
}

// Of files: an unset variable of a script is not a wish for no file.
void refuse_empty_names(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands({})) {
    for (CLI::Option* option : command->get_options()) {
      if (!option->get_type_name().starts_with("FILE") && !option->get_positional()) continue;
      option->check([](const std::string& name) { return name.empty() ? "must not be empty" : ""; });
    }
  }
}

}  // namespace

Flag Flag::required() { return Flag(option_->required()); }
Flag Flag::needs(Flag other) { return Flag(option_->needs(other.option_)); }
Flag Flag::excludes(Flag other) { return Flag(option_->excludes(other.option_)); }
Flag Flag::one_of(const std::vector<std::string>& values) { return Flag(option_->check(CLI::IsMember(values))); }
Flag Flag::within(int low, int high) { return Flag(option_->check(CLI::Range(low, high))); }

Flag Flag::within(double low, double high) {
  const std::string range = format("from %g to %g", low, high);
  const auto check = [=](const std::string& text) {
    double number = 0;
    const bool inside = CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
    return inside ? "" : "must be a number " + range + ", not " + text;
  };
  return Flag(option_->check(CLI::Validator(check, range)));
}

template <class T>
Flag Command::value(const std::string& names, T& to, const char* type, const char* help) {
  return Flag(app_->add_option(names, to, help)->type_name(type));
}
template Flag Command::value(const std::string&, std::string&, const char*, const char*);
template Flag Command::value(const std::string&, int&, const char*, const char*);
template Flag Command::value(const std::string&, double&, const char*, const char*);
template Flag Command::value(const std::string&, std::optional<double>&, const char*, const char*);

Flag Command::values(const std::string& names, std::vector<std::string>& to, const char* type, const char* help,
                     bool separated) {
  CLI::Option* option = app_->add_option(names, to, help)->type_name(type)->allow_extra_args(false);
  return Flag(separated ? option->delimiter(',') : option);
}

Flag Command::arguments(const std::string& names, std::vector<std::string>& to, const char* type, const char* help) {
  return Flag(app_->add_option(names, to, help)->type_name(type));
}

Flag Command::flag(const std::string& names, bool& to, const char* help) {
  return Flag(app_->add_flag(names, to, help));
}

void Command::head_flags(TensorPaths& paths) { add_tensors(*app_, paths, true, false); }
void Command::tensor_flags(TensorPaths& paths, bool with_logits) { add_tensors(*app_, paths, false, with_logits); }

void Command::set_flag(std::vector<std::string>& assignments) {
  values("--set", assignments, "KEY=VALUE", "sets one key of the config, for example model.dtype=bfloat16; repeatable");
}

void ConfigFlags::add_to(Command& command) {
  const Flag free_argument = command.value("CONFIG", positional, "TEXT", "a YAML config, as --config");
  command.value("--config", config, "FILE", "a YAML config").excludes(free_argument);
  command.set_flag(assignments);
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

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>(
          "logitless: a language model's LM head fused with its loss, without ever holding the logits", "logitless")) {
  app_->set_version_flag("--version", std::string("logitless ") + version());
  app_->require_subcommand(1);
  app_->footer(kFooter);
}

CommandLine::~CommandLine() = default;

Command CommandLine::new_command(const char* name, const char* help, const char* footer, Action action) {
  CLI::App* command = app_->add_subcommand(name, help);
  command->footer(footer);
  command->callback([this, action = std::move(action)] { action_ = action; });
  return Command(*command);
}

int CommandLine::run(int argc, char** argv, int bad_input) {
  refuse_empty_names(*app_);
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    const int status = app_->exit(e, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& e) {
    // A word that is not the name of a command counts as left over.
    const std::vector<std::string> words = app_->remaining();
    const bool unknown = app_->get_subcommands().empty() && !words.empty();
    const std::string why = unknown ? words.front() + " is not a command" : e.what();
    complain(why + "; see logitless --help");
    return bad_input;
  }
  const int status = action_();
  print("");  // Fails where anything could not be printed before.
  return status;
}

}  // namespace logitless::cli
