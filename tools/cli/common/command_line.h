// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The flags of commands. CLI11, which takes ten seconds to compile, is seen by command_line.cc alone.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/common/inputs.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace logitless::cli {

/// What the command line asks for, once it has been parsed. Returns the exit status.
using Action = std::function<int()>;

class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag required();
  /// Makes no sense without, or with, another one.
  Flag needs(Flag other);
  Flag excludes(Flag other);
  /// Checks of the value. A number that is NaN lies nowhere.
  Flag one_of(const std::vector<std::string>& values);
  Flag within(double low, double high);
  Flag within(int low, int high);

 private:
  CLI::Option* option_;
};

/// The flags of one command. What they are stored in must live until it has run.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  /// `names` as "-o,--output", or without dashes for a free argument. T is std::string, int, double or an
  /// optional double.
  template <class T>
  Flag value(const std::string& names, T& to, const char* type, const char* help);
  /// May be given many times, or as "a,b,c" where `separated`.
  Flag values(const std::string& names, std::vector<std::string>& to, const char* type, const char* help,
              bool separated = false);
  /// As many free arguments as there are.
  Flag arguments(const std::string& names, std::vector<std::string>& to, const char* type, const char* help);
  Flag flag(const std::string& names, bool& to, const char* help);
  /// --hidden, --lm-head, --targets, --lengths and what else belongs to the model.
  void head_flags(TensorPaths& paths);
  /// The same and whatever else a task reads from safetensors, --logits only for a command that takes them.
  void tensor_flags(TensorPaths& paths, bool with_logits);
  /// --set, for single keys of a config.
  void set_flag(std::vector<std::string>& assignments);

 private:
  CLI::App* app_;
};

/// The config that a command takes: as its first free argument or by --config, and --set for single keys.
struct ConfigFlags {
  std::string positional;
  std::string config;
  std::vector<std::string> assignments;

  void add_to(Command& command);
  std::optional<std::string> path() const;
  io::Config load() const;
  /// The same, of a call that may be split over ranks; `swept` as load_config() takes them.
  io::Config load_with_ranks(std::span<const std::string> swept = {}) const;
};

class CommandLine {
 public:
  CommandLine();
  ~CommandLine();

  /// A new command: `add_flags` gets its flags, `run` is what it does.
  template <class Options>
  void add(const char* name, const char* help, const char* footer, void (*add_flags)(Command&, Options&),
           int (*run)(const Options&)) {
    const auto options = std::make_shared<Options>();
    Command command = new_command(name, help, footer, [=] { return run(*options); });
    add_flags(command, *options);
  }
  /// Parses and runs what was asked for. Returns the exit status; `bad_input` is that of a mistake, which has
  /// been told.
  int run(int argc, char** argv, int bad_input);

 private:
  Command new_command(const char* name, const char* help, const char* footer, Action action);

  std::unique_ptr<CLI::App> app_;
  Action action_;
};

// One a command, in a folder of its own.
void add_bench(CommandLine& line);
void add_compare(CommandLine& line);
void add_compare_models(CommandLine& line);
void add_gradcheck(CommandLine& line);
void add_info(CommandLine& line);
void add_score(CommandLine& line);

}  // namespace logitless::cli
