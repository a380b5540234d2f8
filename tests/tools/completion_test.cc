// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The completion scripts, in the shells that they are for.
#include <set>

#include "cli_fixture.h"
#include "cli_help.h"
#include "io/config_schema.h"

namespace logitless::testing {
namespace {

using Words = std::vector<std::string>;

bool is_installed(const std::string& shell) {
  return std::system(("command -v " + shell + " >/dev/null").c_str()) == 0;
}

class CompletionTest : public CliTest {
 protected:
  /// Writes the script for a shell; returns its path.
  std::string script(const std::string& shell) const {
    const Finished result = run({"completion", shell});
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    return write("completion." + shell, result.out);
  }

  /// What `command` prints, line by line.
  std::set<std::string> lines_of(const std::string& command) const {
    std::set<std::string> lines;
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, pipe)) {
      std::string line = buffer;
      line.pop_back();
      lines.insert(line);
    }
    EXPECT_EQ(pclose(pipe), 0) << command;
    return lines;
  }

  std::set<std::string> names(const Words& help, const std::string& heading) const {
    return names_in(help_list(run(help).out, heading));
  }
  static std::set<std::string> config_keys() {
    std::set<std::string> keys;
    for (const io::KeyRule& rule : io::config_schema()) keys.insert(rule.key + "=");
    return keys;
  }
};

class BashCompletion : public CompletionTest {
 protected:
  void SetUp() override {
    if (!is_installed("bash")) GTEST_SKIP() << "no bash here";
  }

  /// What is offered for the last of `words`; "compopt -o default" stands for file names, which bash offers itself.
  std::set<std::string> offered(const Words& words) const {
    std::string test = "set -u\nsource '" + script("bash") + "'\ncompopt() { echo \"compopt $*\"; }\nCOMP_WORDS=(";
    for (const std::string& word : words) test += " '" + word + "'";
    test += ")\nCOMP_CWORD=" + std::to_string(words.size() - 1) + "\n_logitless\n";
    test += "for word in \"${COMPREPLY[@]}\"; do echo \"$word\"; done\n";
    return lines_of("bash --norc '" + write("test.bash", test) + "'");
  }
};

const std::set<std::string> kFiles = {"compopt -o default"};
const std::set<std::string> kNothing;

TEST_F(BashCompletion, TheFirstWordIsACommandOrAnOption) {
  std::set<std::string> expected = names({"--help"}, "Subcommands:");
  expected.merge(names({"--help"}, "Options:"));
  EXPECT_EQ(offered({"logitless", ""}), expected);
  EXPECT_EQ(offered({"logitless", "comp"}), (std::set<std::string>{"compare", "completion"}));
  EXPECT_EQ(offered({"logitless", "--v"}), std::set<std::string>{"--version"});
  EXPECT_EQ(offered({"logitless", "run-"}), kNothing) << "a hidden command";
}

TEST_F(BashCompletion, EveryOptionOfEveryCommandIsOffered) {
  for (const std::string& command : names({"--help"}, "Subcommands:")) {
    EXPECT_EQ(offered({"logitless", command, "-"}), names({command, "--help"}, "Options:")) << command;
  }
  EXPECT_EQ(offered({"logitless", "compare", "--quiet", "--js"}), std::set<std::string>{"--json"});
}

TEST_F(BashCompletion, SetIsFollowedByAConfigKey) {
  std::set<std::string> expected = config_keys();
  expected.insert("compopt -o nospace");
  for (const char* command : {"compare", "info"}) {
    EXPECT_EQ(offered({"logitless", command, "--set", ""}), expected);
    EXPECT_EQ(offered({"logitless", command, "--set", "=", ""}), expected);
    EXPECT_EQ(offered({"logitless", command, "--set", "="}), expected);
  }
  const std::set<std::string> plan = {"kernel.plan=", "compopt -o nospace"};
  EXPECT_EQ(offered({"logitless", "compare", "--set", "kernel.pl"}), plan);
  EXPECT_EQ(offered({"logitless", "compare", "--set", "=", "kernel.pl"}), plan);
  EXPECT_EQ(offered({"logitless", "compare", "--set", "seed", "="}), kNothing);
  EXPECT_EQ(offered({"logitless", "compare", "--set", "seed", "=", "1"}), kNothing);
}

TEST_F(BashCompletion, FilesAreOfferedWhereOneIsWanted) {
  EXPECT_EQ(offered({"logitless", "compare", ""}), kFiles);
  EXPECT_EQ(offered({"logitless", "compare", "conf"}), kFiles);
  EXPECT_EQ(offered({"logitless", "compare", "--json", ""}), kFiles);
  EXPECT_EQ(offered({"logitless", "compare", "--config", "=", "tiny"}), kFiles);
  EXPECT_EQ(offered({"logitless", "compare", "--hidden", "states.saf"}), kFiles);
  EXPECT_EQ(offered({"logitless", "compare", "--hidden", "states.safetensors", ":"}), kNothing) << "a tensor";
  EXPECT_EQ(offered({"logitless", "compare", "--hidden", "states.safetensors", ":", "h"}), kNothing);
}

TEST_F(BashCompletion, OtherValuesAreLeftToTheUser) {
  EXPECT_EQ(offered({"logitless", "compare", "--repeat", ""}), kNothing);
  EXPECT_EQ(offered({"logitless", "nonsense", ""}), kNothing);
  EXPECT_EQ(offered({"logitless", "--version", ""}), kNothing);
}

TEST_F(BashCompletion, ShellsAreOfferedByName) {
  EXPECT_EQ(offered({"logitless", "completion", ""}), (std::set<std::string>{"bash", "fish", "zsh"}));
  EXPECT_EQ(offered({"logitless", "completion", "z"}), std::set<std::string>{"zsh"});
}

class FishCompletion : public CompletionTest {
 protected:
  void SetUp() override {
    if (!is_installed("fish")) GTEST_SKIP() << "no fish here";
  }

  /// The candidates for a line that ends at the cursor, without their descriptions.
  std::set<std::string> offered(const std::string& line) const {
    const std::string test =
        "source '" + script("fish") + "'\ncd '" + folder_.string() + "'\ncomplete -C '" + line + "'\n";
    std::set<std::string> words;
    for (const std::string& candidate : lines_of("fish --no-config '" + write("test.fish", test) + "'")) {
      words.insert(candidate.substr(0, candidate.find('\t')));
    }
    return words;
  }
};

TEST_F(FishCompletion, OffersCommandsOptionsKeysFilesAndShells) {
  EXPECT_EQ(offered("logitless "), names({"--help"}, "Subcommands:"));
  for (const std::string& command : names({"--help"}, "Subcommands:")) {
    const std::set<std::string> words = offered("logitless " + command + " -");
    for (const std::string& name : names({command, "--help"}, "Options:")) {
      EXPECT_TRUE(words.contains(name)) << command << " " << name;
    }
  }
  EXPECT_EQ(offered("logitless compare --set "), config_keys());
  EXPECT_EQ(offered("logitless compare --set kernel.pl"), std::set<std::string>{"kernel.plan="});
  EXPECT_EQ(offered("logitless completion "), (std::set<std::string>{"bash", "fish", "zsh"}));
  EXPECT_TRUE(offered("logitless compare test.f").contains("test.fish"));
  EXPECT_TRUE(offered("logitless compare --json test.f").contains("test.fish"));
  EXPECT_EQ(offered("logitless compare --repeat test.f"), kNothing);
}

TEST_F(CompletionTest, TheZshScriptIsOneThatZshCanRead) {
  if (!is_installed("zsh")) GTEST_SKIP() << "no zsh here";
  EXPECT_EQ(lines_of("zsh -f -n '" + script("zsh") + "'"), kNothing);
}

TEST_F(CompletionTest, AnUnknownShellIsNamed) {
  const Finished result = run({"completion", "tcsh"});
  EXPECT_EQ(result.exit_code(), 2);
  EXPECT_TRUE(is_one_line(result.err));
  EXPECT_TRUE(has(result.err, "tcsh"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace logitless::testing
