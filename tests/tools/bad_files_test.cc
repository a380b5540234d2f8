// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The command with unusual files: full disks, pipes, dangling links, text without end, files that shrink
// while they are read.
#include <algorithm>
#include <future>

#include "cli_fixture.h"
#include "processes.h"

namespace logitless::testing {
namespace bad_files_test {

class BadFilesTest : public CliTest {
 protected:
  // Runs a line of shell in the folder, where $L is the command. A hang ends with status 124. Lines that run
  // at the same time need different names.
  Finished shell(const std::string& line, const std::string& name = "") const {
    const std::string script = "cd '" + folder_.string() + "' && L='timeout 120 " LOGITLESS_CLI_PATH "' && { " + line +
                               "; } >out" + name + " 2>err" + name;
    Finished run{};
    run.status = std::system(script.c_str());
    run.out = read("out" + name);
    run.err = read("err" + name);
    return run;
  }
  void expect_refusal(const std::string& line, const std::string& message, const std::string& name = "") const {
    const Finished result = shell(line, name);
    EXPECT_EQ(result.exit_code(), 2) << line << "\n" << result.err;
    EXPECT_TRUE(is_one_line(result.err)) << line << "\n" << result.err;
    EXPECT_TRUE(has(result.err, message)) << line;
  }
  const std::string config_ = write("c.yaml", "model: {hidden_size: 8, vocab_size: 9}\nseq_len: 4\n");
};

const std::string kDiskIsFull = "standard output cannot be written: No space left on device\n";

TEST_F(BadFilesTest, WhateverPrintsFailsOnAFullDisk) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "/dev/full is not there";
  for (const char* words :
       {"--help", "--version", "compare --help", "info", "info --json", "compare c.yaml", "compare c.yaml --json -",
        "gradcheck c.yaml", "gradcheck c.yaml --json -", "score c.yaml -o scores", "score c.yaml -o scores --json -"}) {
    expect_refusal(std::string("$L ") + words + " >/dev/full", kDiskIsFull);
  }
  // It reports progress on standard error.
  write("small.yaml", "level: logits\nmodel: {vocab_size: 300}\nseq_len: 8\n");
  const Finished bench = shell("$L bench small.yaml --iters 1 >/dev/full");
  EXPECT_EQ(bench.exit_code(), 2);
  EXPECT_TRUE(bench.err.ends_with("logitless: " + kDiskIsFull)) << bench.err;
  EXPECT_EQ(shell("$L compare c.yaml --quiet >/dev/full").exit_code(), 0) << "it prints nothing";
}

TEST_F(BadFilesTest, AClosedStandardOutputIsAnErrorAndLendsItsNumberToNoFile) {
  expect_refusal("$L info >&-", "standard output cannot be written: Bad file descriptor");
  expect_refusal("$L score c.yaml -o scores >&-", "standard output cannot be written: Bad file descriptor");
  EXPECT_NE(io::SafetensorsFile(path("scores")).find("logp"), nullptr) << "the summary is not in it";
  for (const char* command : {"compare", "gradcheck"}) {
    const Finished silent = shell(std::string("$L ") + command + " c.yaml --quiet >&-");
    EXPECT_EQ(silent.exit_code(), 0) << silent.err;
  }
}

TEST_F(BadFilesTest, TextMayComeThroughAPipe) {
  for (const char* line :
       {"cat c.yaml | $L compare /dev/stdin --quiet", "mkfifo f; cat c.yaml >f & $L compare f --quiet",
        "(sleep 0.2; cat c.yaml) | $L compare --config /dev/stdin --quiet",
        "mkfifo g; (sleep 0.2; cat c.yaml >g) & $L gradcheck g --quiet"}) {
    const Finished result = shell(line);
    EXPECT_EQ(result.exit_code(), 0) << line << "\n" << result.err;
  }
  expect_refusal(": | $L compare /dev/stdin", "/dev/stdin: is empty; a config needs keys");
}

TEST_F(BadFilesTest, APipeThatNobodyWritesToIsRefused) {
  std::filesystem::create_directory(path("d"));
  ASSERT_EQ(shell("mkfifo f").exit_code(), 0);
  // Each of them waits for seconds, so they run at the same time.
  std::vector<std::future<void>> waits;
  for (const char* words : {"compare f", "gradcheck f", "bench c.yaml --against f", "bench f", "info f"}) {
    waits.push_back(std::async(std::launch::async, [this, words, name = std::to_string(waits.size())] {
      expect_refusal(std::string("$L ") + words, "f: is a pipe without a writer", name);
    }));
  }
  for (std::future<void>& wait : waits) wait.get();
  expect_refusal("$L compare --hidden f --lm-head f --targets f",
                 "f: is not a regular file: tensors are read in place");
  expect_refusal("$L compare /dev/null", "/dev/null: is neither a regular file nor a pipe");
  expect_refusal("$L bench c.yaml --against /dev/null", "/dev/null: is neither a regular file nor a pipe");
  expect_refusal("$L bench c.yaml --against d", "d: is a directory, not a file");
}

TEST_F(BadFilesTest, TextWithoutEndIsRefused) {
  expect_refusal("yes | $L compare /dev/stdin", "/dev/stdin: holds more than 1 MiB");
  // yaml-cpp alone would read this for ever; the limit on CPU time would then end the process.
  write("comma", ",");
  expect_refusal("(ulimit -t 60; $L compare comma)", "comma:1: is not YAML: no value can begin here");
}

TEST_F(BadFilesTest, EveryOptionThatNamesAFileIsNamedWithIt) {
  const std::string states = path("states"), head_file = path("head");
  const Words hidden = {"--hidden", states}, head = {"--lm-head", head_file};
  const Words targets = {"--targets", states}, tensors = write_tensors();
  const Words models = Words{"compare-models"} + hidden + head, base = {"--base-hidden", states, "--base-lm-head"};
  const Words score = {"score", "-o", path("none")};
  const auto task = [&](const char* command, const std::string& name, const Words& more) {
    return Words{command} + tensors + Words{"--set", "task=" + name} + more;
  };
  // Each lacks the file for its last word.
  std::vector<Words> lines = {
      score + head + targets + Words{"--hidden"},
      score + hidden + targets + Words{"--lm-head"},
      score + hidden + head + Words{"--targets"},
      score + tensors + Words{"--lora"},
      score + Words{"--config"},
      {"gradcheck", "--set", "level=logits", "--targets", states, "--logits"},
      models + base,
      task("compare", "distillation_loss", {"--teacher-lm-head", head_file, "--teacher-hidden"}),
      task("compare", "distillation_loss",
           {"--teacher-hidden", states, "--teacher-lm-head", head_file, "--teacher-bias"}),
      task("gradcheck", "kto_loss", {"--labels"}),
      task("compare", "soft_cross_entropy", {"--soft-rows"}),
      {"compare", "--config"},
      {"bench", kTiny, "--against"},
      {"info", "--config"},
  };
  for (const char* one : {"--lengths", "--bias", "--lora", "--vocab-ids"}) {
    lines.push_back(Words{"compare"} + tensors + Words{one});
  }
  for (const char* one : {"--base-bias", "--base-lora", "--targets"}) {
    lines.push_back(models + base + Words{head_file, one});
  }
  for (const char* one : {"--mask", "--advantages", "--old-logps"}) {
    lines.push_back(task("compare", "policy_loss", {one}));
  }

  std::filesystem::create_directory(path("folder"));
  // Names, and how they are printed.
  std::vector<std::pair<std::string, std::string>> bad = {
      {"folder", "folder"}, {"empty", "empty"}, {"two\nred\x1b[31m", "two\\nred\\x1b[31m"}};
  const std::string locked = write("locked", "text");
  write("empty", "");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (access(locked.c_str(), R_OK) != 0) bad.emplace_back("locked", "locked");  // root may read everything
  for (const Words& line : lines) {
    // For a LoRA the folder is read, and the message names the missing file.
    for (const auto& [file, shown] : bad) {
      expect_refusals({{line + Words{path(file)}, "logitless: " + line.back() + " " + path(shown)}});
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path("none")));

  std::filesystem::create_directory(path("two\nlines"));
  for (const Words& line :
       {Words{"score", kTiny, "-o"}, Words{"compare", kTiny, "--json"}, Words{"gradcheck", kTiny, "--json"},
        Words{"bench", kTiny, "-o"}, models + base + Words{head_file, "-o"}}) {
    const std::string begin = "logitless: " + line.back() + " " + folder_.string();
    expect_refusals({{line + Words{path("absent/file")}, begin + "/absent/file: cannot be written"},
                     {line + Words{path("two\nlines")}, begin + "/two\\nlines: is a directory"}});
  }
}

TEST_F(BadFilesTest, WhatIsTypedReachesTheTerminalEscaped) {
  const std::string nasty = "a\nb\x1b[2J\x7f\xc2\x9b", shown = "a\\nb\\x1b[2J\\x7f\\u009b";
  expect_refusals({{{nasty}, shown},
                   {{"compare", nasty}, shown + ": cannot be opened"},
                   {{"compare", kTiny, "--set", "task=" + nasty}, "task must be"},
                   {{"compare", kTiny, "--" + nasty}, shown},
                   {{"bench", kTiny, "--contenders", nasty}, shown},
                   {{"bench", kTiny, "--sweep", nasty + "=1"}, shown}});
}

TEST_F(BadFilesTest, ALinkThatLeadsToItselfIsNamed) {
  std::filesystem::create_symlink("loop", path("loop"));
  const std::string reason = "Too many levels of symbolic links";
  for (const char* words :
       {"compare loop", "compare --hidden loop --lm-head loop --targets loop", "bench c.yaml --against loop"}) {
    expect_refusal(std::string("$L ") + words, "loop: cannot be opened: " + reason);
  }
  for (const char* words :
       {"compare c.yaml --json loop", "score c.yaml -o loop", "bench c.yaml -o loop", "gradcheck c.yaml --json loop"}) {
    expect_refusal(std::string("$L ") + words, " loop: cannot be written: " + reason);
  }
}

// Links with the names that the process once used for temporary files, OUT.<pid>.tmp.
TEST_F(BadFilesTest, WhatIsWrittenGoesThroughNoFileThatSomebodyHasPlanted) {
  write("victim", "precious");
  const std::string plant = "for f in report.json scores.safetensors; do ln -s victim $f.$$.tmp; done; ";
  for (const char* words : {"compare c.yaml --quiet --json report.json", "score c.yaml -o scores.safetensors"}) {
    const Finished result = shell("umask 027; sh -c '" + plant + "exec " LOGITLESS_CLI_PATH " " + words + "'");
    EXPECT_EQ(result.exit_code(), 0) << result.err;
  }
  EXPECT_EQ(read("victim"), "precious");
  for (const char* name : {"report.json", "scores.safetensors"}) {
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path(name)))) << name;
    EXPECT_EQ(std::filesystem::status(path(name)).permissions(), std::filesystem::perms(0640)) << name;
  }
}

TEST_F(BadFilesTest, AFileThatMayGrowNoFurtherIsAnErrorAndLeavesNothingBehind) {
  write("small.yaml", "level: logits\nmodel: {vocab_size: 300}\nseq_len: 8\n");
  write("old.json", "old");
  const std::string too_large = ": cannot be written: File too large\n";
  const auto refuse = [&](const std::string& words, const std::string& message) {
    // The limit applies to standard error too: a file of one block holds the message.
    const Finished result = shell("(ulimit -f 1; exec " LOGITLESS_CLI_PATH " " + words + ")");
    EXPECT_EQ(result.exit_code(), 2) << words << "\n" << result.err;
    EXPECT_TRUE(result.err.ends_with("logitless: " + message + too_large)) << words << "\n" << result.err;
  };
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder_), {}); };
  const auto before = files() + 2;  // plus the shell's output files
  refuse("gradcheck c.yaml --quiet --json new.json", "--json new.json");
  refuse("gradcheck c.yaml --quiet --json old.json", "--json old.json");
  refuse("score '" + kTiny + "' -o scores", "scores");
  EXPECT_EQ(files(), before);
  EXPECT_EQ(read("old.json"), "old");
  refuse("bench small.yaml --iters 1 --warmup 0 --quiet -o run.jsonl", "-o run.jsonl");
}

// The file is cut once the command, or the process that it measures in, has mapped it twice (for the states
// and for the head) and mapped the targets: it opens no other files after that. The work takes some seconds.
TEST_F(BadFilesTest, AFileThatIsCutWhileItIsReadIsTold) {
  const int64_t tokens = 600, hidden = 256, vocab = 30000;
  const std::vector<float> states(static_cast<size_t>(tokens * hidden), 0.5f);
  const std::vector<float> head(static_cast<size_t>(vocab * hidden), 0.25f);
  const std::vector<int64_t> targets(static_cast<size_t>(tokens), 1);
  const std::string file = path("all"), ids = path("words");
  io::write_safetensors(ids, std::vector<TensorToWrite>{{"targets", "I64", {tokens}, targets.data()}});
  for (const char* command : {"compare", "gradcheck"}) {
    io::write_safetensors(file, std::vector<TensorToWrite>{{"hidden", "F32", {tokens, hidden}, states.data()},
                                                           {"lm_head", "F32", {vocab, hidden}, head.data()}});
    const pid_t process = start({command, "--hidden", file, "--lm-head", file, "--targets", ids});
    const auto has_mapped_all = [&](pid_t one) {
      std::ostringstream text;
      text << std::ifstream("/proc/" + std::to_string(one) + "/maps").rdbuf();
      const std::string maps = text.str();
      return maps.find(file) != maps.rfind(file) && maps.find(ids) != std::string::npos;
    };
    while (!has_ended(process) && !has_mapped_all(process) &&
           std::ranges::none_of(children_of(process), has_mapped_all)) {
      std::this_thread::yield();
    }
    std::filesystem::resize_file(file, 100);
    const Finished result = finish(process);
    EXPECT_EQ(result.exit_code(), 2) << command << "\n" << result.err;
    EXPECT_TRUE(has(result.err, "was cut short while it was read\n")) << command;
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
  }
}

TEST_F(BadFilesTest, WithoutProcTheReasonIsTold) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer needs /proc itself";
#endif
  const std::string hide = "unshare -rm sh -c 'mount -t tmpfs none /proc && exec \"$0\" \"$@\"' ";
  if (shell(hide + "true").exit_code() != 0) GTEST_SKIP() << "no mount namespace can be made here";
  const Finished result = shell(hide + "$L compare c.yaml");
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_EQ(result.err, "logitless: /proc is not mounted, and this command needs it to measure memory\n");
}

}  // namespace bad_files_test
}  // namespace logitless::testing
