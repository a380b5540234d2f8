// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Requirements for every command: an example, errors that name the flag, a man page that lists every option.
#include "cli_help.h"

#include <regex>

#include "cli_fixture.h"
#include "logitless/environment.h"

namespace logitless::testing {
namespace cli_help_test {

std::string page_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(MAN_FOLDER "/") + name + ".1.md").rdbuf();
  EXPECT_FALSE(text.str().empty()) << name << " has no page";
  return text.str();
}

class HelpTest : public CliTest {
 protected:
  /// Returns the help of one command, or of `logitless` itself.
  std::string help(const std::string& command) const {
    const Finished result =
        run(command.empty() ? std::vector<std::string>{"--help"} : std::vector<std::string>{command, "--help"});
    EXPECT_EQ(result.exit_code(), 0) << command;
    EXPECT_EQ(result.err, "") << command;
    return result.out;
  }

  std::vector<std::string> commands() const {
    std::vector<std::string> names;
    for (const HelpEntry& entry : help_list(help(""), "Subcommands:")) names.push_back(entry.names.front());
    EXPECT_GE(names.size(), 3u);
    return names;
  }

  std::vector<HelpEntry> options(const std::string& command) const { return help_list(help(command), "Options:"); }
  std::vector<HelpEntry> free_arguments(const std::string& command) const {
    return help_list(help(command), "Positionals:");
  }
};

TEST_F(HelpTest, TheConfigsOfExamplesAreThere) {
  std::vector<std::string> names = commands();
  names.push_back("");
  int configs = 0;
  for (const std::string& command : names) {
    const std::string text = help(command) + page_of("logitless" + (command.empty() ? "" : "-" + command));
    const std::regex config(R"(configs/[\w./-]+\.yaml)");
    for (std::sregex_iterator it(text.begin(), text.end(), config), end; it != end; ++it) {
      ++configs;
      EXPECT_TRUE(std::filesystem::exists(std::string(SOURCE_FOLDER "/") + it->str())) << command << ": " << it->str();
    }
  }
  EXPECT_GT(configs, 10);
}

TEST_F(HelpTest, TheVersionIsThatOfTheLibrary) {
  const Finished result = run({"--version"});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.out, std::string("logitless ") + version() + "\n");
}

TEST_F(HelpTest, AMisspeltOptionIsToldTheNearOne) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"compare", kTiny, "--tolerance", "1"}, ""},
      {{"compare", kTiny, "--repaet", "2"}, "--repaet is not an option; did you mean --repeat?"},
      {{"compare", kTiny, "more", "--repaet", "2"}, "--repaet is not an option; did you mean --repeat?"},
      {{"compare", "--hiden", "x", "--lm-head", "y"}, "--hiden is not an option; did you mean --hidden?"},
      {{"--versoin"}, "--versoin is not an option; did you mean --version?"},
      {{"score", kTiny, "-o", "none", "--target=x"}, "--target is not an option; did you mean --targets?"},
      {{"bench", kTiny, "--contender", "auto"}, "--contender is not an option; did you mean --contenders?"}};
  for (const auto& [words, near] : cases) {
    const Finished result = run(words);
    EXPECT_EQ(result.exit_code(), 2);
    EXPECT_TRUE(has(result.err, near + "; see logitless --help")) << result.err;
    EXPECT_EQ(static_cast<bool>(has(result.err, "did you mean")), !near.empty()) << result.err;
  }
}

TEST_F(HelpTest, AnOptionWithoutItsValueIsNamed) {
  int options_seen = 0;
  for (const std::string& command : commands()) {
    for (const HelpEntry& option : options(command)) {
      if (option.type.empty()) continue;
      ++options_seen;
      const std::string& name = option.names.back();
      const Finished result = run({command, name});
      EXPECT_EQ(result.exit_code(), 2) << command << " " << name;
      EXPECT_TRUE(is_one_line(result.err)) << command << " " << name << ": " << result.err;
      EXPECT_TRUE(has(result.err, name)) << command;
    }
  }
  EXPECT_GT(options_seen, 10);
}

TEST_F(HelpTest, WhatACommandCannotBeWithoutIsNamed) {
  int commands_seen = 0;
  for (const std::string& command : commands()) {
    std::vector<HelpEntry> entries = options(command);
    for (const HelpEntry& entry : free_arguments(command)) entries.push_back(entry);
    const auto required = [](const HelpEntry& entry) { return entry.required; };
    if (std::none_of(entries.begin(), entries.end(), required)) continue;
    ++commands_seen;
    const Finished result = run({command});
    EXPECT_EQ(result.exit_code(), 2) << command;
    EXPECT_TRUE(is_one_line(result.err)) << command << ": " << result.err;
    const auto is_named = [&](const HelpEntry& entry) { return entry.required && has(result.err, entry.names.back()); };
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), is_named)) << command << ": " << result.err;
  }
  EXPECT_GT(commands_seen, 0);
}

/// Returns the text of one section of a page.
std::string section(const std::string& page, const std::string& heading) {
  const std::string line = "\n## " + heading + "\n";
  const size_t begin = page.find(line);
  if (begin == std::string::npos) return "";
  return page.substr(begin + line.size(), page.find("\n## ", begin + 1) - begin - line.size());
}

/// Returns the names at the beginning of a page's list entries: "- `-o FILE`, `--output FILE`: ...".
std::set<std::string> entries_of(const std::string& text) {
  std::set<std::string> names;
  const std::regex entry("(?:^|\n)- ((?:`[^`]+`(?:, )?)+):"), name("`([^ `]+)[^`]*`");
  for (std::sregex_iterator it(text.begin(), text.end(), entry), end; it != end; ++it) {
    const std::string front = (*it)[1];
    for (std::sregex_iterator n(front.begin(), front.end(), name); n != end; ++n) names.insert((*n)[1]);
  }
  return names;
}

std::set<std::string> long_options_in(const std::string& text) {
  std::set<std::string> names;
  const std::regex option("(?:^|[^-\\w])(--[a-z][a-z-]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), option), end; it != end; ++it) names.insert((*it)[1]);
  return names;
}

TEST_F(HelpTest, EveryManPageHasItsSections) {
  std::vector<std::string> names = {"logitless"};
  for (const std::string& command : commands()) names.push_back("logitless-" + command);
  for (const std::string& name : names) {
    const std::string page = page_of(name);
    EXPECT_TRUE(page.starts_with("# " + name + "(1)\n")) << name;
    EXPECT_TRUE(section(page, "NAME").starts_with("\n" + name + " - ")) << name;
    for (const char* heading : {"SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"}) {
      EXPECT_NE(section(page, heading), "") << name << " has no section " << heading;
    }
    std::string call = name;
    if (const size_t dash = call.find('-'); dash != std::string::npos) call[dash] = ' ';
    EXPECT_TRUE(has(section(page, "SYNOPSIS"), "\n    " + call)) << name;
    EXPECT_TRUE(has(section(page, "EXAMPLES"), call)) << name;
  }
}

TEST_F(HelpTest, AManPageListsTheOptionsOfItsCommandAndNoOthers) {
  EXPECT_EQ(entries_of(section(page_of("logitless"), "OPTIONS")), names_in(options("")));
  for (const std::string& command : commands()) {
    std::set<std::string> expected = names_in(options(command));
    expected.merge(names_in(free_arguments(command)));
    EXPECT_EQ(entries_of(section(page_of("logitless-" + command), "OPTIONS")), expected) << command;
  }
}

TEST_F(HelpTest, ManPagesMentionNoOptionThatDoesNotExist) {
  std::set<std::string> known = names_in(options(""));
  for (const std::string& command : commands()) known.merge(names_in(options(command)));
  for (const std::string& command : commands()) {
    for (const std::string& option : long_options_in(page_of("logitless-" + command))) {
      EXPECT_TRUE(known.contains(option)) << command << ": " << option;
    }
  }
}

}  // namespace cli_help_test
}  // namespace logitless::testing
