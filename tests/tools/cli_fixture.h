// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Runs the command in its own folder and keeps its output.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "folder_test.h"
#include "io/safetensors.h"

namespace logitless::testing {

using io::TensorToWrite;
using nlohmann::json;

/// Returns the path of a shipped config.
inline std::string config_named(const std::string& name) {
  return (std::filesystem::path(SOURCE_FOLDER) / "configs" / (name + ".yaml")).string();
}
inline const std::string kTiny = config_named("tiny");

struct Finished {
  int status;  // from waitpid()
  std::string out;
  std::string err;

  int exit_code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }
};

inline bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == text.size() - 1; }

/// Concatenates the words of a command line.
inline std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class CliTest : public FolderTest {
 protected:
  pid_t start(const std::vector<std::string>& arguments) const {
    std::vector<std::string> words = {"logitless"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = -1;
    EXPECT_EQ(posix_spawn(&child, LOGITLESS_CLI_PATH, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return child;
  }
  Finished finish(pid_t child) const {
    Finished run{};
    EXPECT_EQ(waitpid(child, &run.status, 0), child);
    run.out = read("out");
    run.err = read("err");
    return run;
  }
  Finished run(const std::vector<std::string>& arguments) const { return finish(start(arguments)); }
  Finished compare(const std::vector<std::string>& settings, std::vector<std::string> rest = {}) const {
    std::vector<std::string> arguments = {"compare", kTiny};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return run(arguments);
  }
  json report(const std::vector<std::string>& settings) const {
    const Finished result = compare(settings, {"--json", "-"});
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_EQ(result.err, "");
    return json::parse(result.out, nullptr, false);
  }
  // Writes seeded tensors and returns their arguments: hidden [6, 5], head [7, 5] or [5, 7], targets [6].
  std::vector<std::string> write_tensors(bool tall, float poison = 0) const;
};

inline std::vector<std::string> CliTest::write_tensors(bool tall, float poison) const {
  std::vector<float> hidden(30), head(35);
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] = std::sin(static_cast<float>(i));
  for (size_t v = 0; v < 7; ++v) {
    for (size_t h = 0; h < 5; ++h) head[tall ? v * 5 + h : h * 7 + v] = std::cos(static_cast<float>(v * 5 + h));
  }
  hidden[8] += poison;
  const std::vector<int32_t> targets = {0, 1, 6, -100, 3, 2};
  const std::vector<int64_t> lengths = {2, 4}, short_lengths = {2, 3};
  const std::vector<float> bias = {0, 1, 2, 3, 4, 5, 6};
  const std::vector<TensorToWrite> states = {{"hidden", "F32", {6, 5}, hidden.data()},
                                             {"targets", "I32", {6}, targets.data()},
                                             {"lengths", "I64", {2}, lengths.data()},
                                             {"short", "I64", {2}, short_lengths.data()},
                                             {"bias", "F32", {7}, bias.data()}};
  const std::vector<int64_t> shape = tall ? std::vector<int64_t>{7, 5} : std::vector<int64_t>{5, 7};
  const std::vector<TensorToWrite> weights = {{"lm_head", "F32", shape, head.data()}};
  io::write_safetensors(path("states"), states);
  io::write_safetensors(path("head"), weights);
  return {"--hidden", path("states"), "--lm-head", path("head"), "--targets", path("states")};
}

}  // namespace logitless::testing
