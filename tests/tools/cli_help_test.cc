// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Requirements for every command: an example, errors that name the flag, a man page that lists every option.
#include <regex>
#include <set>

#include "cli_fixture.h"
#include "logitless/environment.h"

namespace logitless::testing {
namespace cli_help_test {

using Names = std::set<std::string>;

/// One entry of a list of `logitless COMMAND --help`.
struct HelpEntry {
  Words names;  ///< "-o" and "--output", or "CONFIG", or a command's name
  bool has_value = false, required = false;
};

/// Returns the entries below a line such as "Options:", or none if the text has no such line.
std::vector<HelpEntry> help_list(const std::string& help, const std::string& heading) {
  std::vector<HelpEntry> entries;
  std::istringstream lines(help);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) inside = false;
    // An entry is indented by two spaces; its description follows after several, or on lines further to the
    // right.
    if (inside && line.size() > 2 && line[2] != ' ') {
      std::istringstream words(line.substr(2, line.find("  ", 2) - 2));
      std::string names, type;
      words >> names >> type;
      HelpEntry entry;
      std::istringstream each(names);
      for (std::string name; std::getline(each, name, ',');) entry.names.push_back(name);
      entry.has_value = !type.empty() && type != "REQUIRED";
      entry.required = has(words.str(), " REQUIRED");
      entries.push_back(entry);
    }
    if (line == heading) inside = true;
  }
  return entries;
}

Names names_in(const std::vector<HelpEntry>& entries) {
  Names names;
  for (const HelpEntry& entry : entries) names.insert(entry.names.begin(), entry.names.end());
  return names;
}

/// Returns all matches of the first group.
Names matches(const std::string& text, const std::string& pattern) {
  Names out;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) out.insert((*it)[1]);
  return out;
}

/// Returns the text of one section of a page.
std::string section(const std::string& page, const std::string& heading) {
  const std::string line = "\n## " + heading + "\n";
  const size_t begin = page.find(line);
  if (begin == std::string::npos) return "";
  return page.substr(begin + line.size(), page.find("\n## ", begin + 1) - begin - line.size());
}

/// Returns the names at the beginning of a page's list entries: "- `-o FILE`, `--output FILE`: ...".
Names entries_of(const std::string& text) {
  Names names;
  for (const std::string& front : matches(text, "(?:^|\n)- ((?:`[^`]+`(?:, )?)+):")) {
    names.merge(matches(front, "`([^ `]+)[^`]*`"));
  }
  return names;
}

class HelpTest : public CliTest {
 protected:
  /// Returns the help of one command, or of `logitless` itself.
  std::string help(const std::string& command) const {
    const Finished result = run(command.empty() ? Words{"--help"} : Words{command, "--help"});
    EXPECT_EQ(result.exit_code(), 0) << command;
    EXPECT_EQ(result.err, "") << command;
    return result.out;
  }
  std::vector<HelpEntry> options(const std::string& command) const { return help_list(help(command), "Options:"); }
  std::vector<HelpEntry> free_arguments(const std::string& command) const {
    return help_list(help(command), "Positionals:");
  }
  /// The commands, and "" for `logitless` itself.
  Words all_commands() const {
    Words names = {""};
    for (const HelpEntry& entry : help_list(help(""), "Subcommands:")) names.push_back(entry.names.front());
    EXPECT_GE(names.size(), 6u);
    return names;
  }
  static std::string page_of(const std::string& command) {
    const std::string name = "logitless" + (command.empty() ? "" : "-" + command);
    std::ostringstream text;
    text << std::ifstream(std::string(MAN_FOLDER "/") + name + ".1.md").rdbuf();
    EXPECT_TRUE(text.str().starts_with("# " + name + "(1)\n")) << name;
    return text.str();
  }
};

TEST_F(HelpTest, TheVersionIsThatOfTheLibrary) {
  EXPECT_EQ(run({"--version"}).out, std::string("logitless ") + version() + "\n");
}

TEST_F(HelpTest, AMisspeltOptionIsToldTheNearOne) {
  const auto near = [](const char* wrong, const char* right) {
    return std::string(wrong) + " is not an option; did you mean " + right + "?; see logitless --help";
  };
  expect_refusals({{{"compare", kTiny, "--repaet", "2"}, near("--repaet", "--repeat")},
                   {{"compare", kTiny, "more", "--repaet", "2"}, near("--repaet", "--repeat")},
                   {{"compare", "--hiden", "x", "--lm-head", "y"}, near("--hiden", "--hidden")},
                   {{"--versoin"}, near("--versoin", "--version")},
                   {{"score", kTiny, "-o", "none", "--target=x"}, near("--target", "--targets")},
                   {{"bench", kTiny, "--contender", "auto"}, near("--contender", "--contenders")}});
  EXPECT_FALSE(has(run({"compare", kTiny, "--tolerance", "1"}).err, "did you mean"));
}

TEST_F(HelpTest, WhatIsMissingIsNamed) {
  int options_seen = 0, required_seen = 0;
  for (const std::string& command : all_commands()) {
    if (command.empty()) continue;
    std::vector<HelpEntry> entries = options(command);
    for (const HelpEntry& option : entries) {
      if (!option.has_value) continue;
      ++options_seen;
      expect_refusals({{{command, option.names.back()}, option.names.back()}});
    }
    const std::vector<HelpEntry> free = free_arguments(command);
    entries.insert(entries.end(), free.begin(), free.end());
    std::erase_if(entries, [](const HelpEntry& entry) { return !entry.required; });
    if (entries.empty()) continue;
    ++required_seen;
    const Finished result = run({command});
    EXPECT_EQ(result.exit_code(), 2) << command;
    EXPECT_TRUE(is_one_line(result.err)) << command << ": " << result.err;
    EXPECT_TRUE(
        std::ranges::any_of(entries, [&](const HelpEntry& entry) { return bool{has(result.err, entry.names.back())}; }))
        << command << ": " << result.err;
  }
  EXPECT_GT(options_seen, 10);
  EXPECT_GT(required_seen, 0);
}

TEST_F(HelpTest, EveryCommandHasAManPageWithItsOptionsAndNoOthers) {
  Names known;
  for (const std::string& command : all_commands()) known.merge(names_in(options(command)));
  Names configs;
  for (const std::string& command : all_commands()) {
    SCOPED_TRACE(command);
    const std::string page = page_of(command), call = "logitless" + (command.empty() ? "" : " " + command);
    for (const char* heading : {"DESCRIPTION", "EXIT STATUS", "FILES", "SEE ALSO"}) {
      EXPECT_NE(section(page, heading), "") << heading;
    }
    EXPECT_TRUE(section(page, "NAME").starts_with("\nlogitless" + (command.empty() ? "" : "-" + command) + " - "));
    EXPECT_TRUE(has(section(page, "SYNOPSIS"), "\n    " + call));
    EXPECT_TRUE(has(section(page, "EXAMPLES"), call));
    Names expected = names_in(options(command));
    if (!command.empty()) expected.merge(names_in(free_arguments(command)));
    EXPECT_EQ(entries_of(section(page, "OPTIONS")), expected);
    for (const std::string& option : matches(page, "(?:^|[^-\\w])(--[a-z][a-z-]*)")) {
      EXPECT_TRUE(command.empty() || known.contains(option)) << option;
    }
    configs.merge(matches(help(command) + page, R"((configs/[\w./-]+\.yaml))"));
  }
  EXPECT_GT(configs.size(), 5u);
  for (const std::string& config : configs) {
    EXPECT_TRUE(std::filesystem::exists(std::string(SOURCE_FOLDER "/") + config)) << config;
  }
}

}  // namespace cli_help_test
}  // namespace logitless::testing
