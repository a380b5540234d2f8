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

using Words = std::vector<std::string>;

/// Concatenates the words of a command line.
inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A command line that is refused, and a part of its message.
struct Refusal {
  Words arguments;
  std::string message;
};

class CliTest : public FolderTest {
 protected:
  pid_t start(const Words& arguments) const {
    Words words = Words{"logitless"} + arguments;
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
  Finished run(const Words& arguments) const { return finish(start(arguments)); }
  /// Expects exit status 2, nothing on standard output, and one line on standard error.
  void expect_refusals(const std::vector<Refusal>& refusals, const Words& first = {}) const {
    for (const auto& [arguments, message] : refusals) {
      const Finished result = run(first + arguments);
      EXPECT_EQ(result.exit_code(), 2) << message << "\n" << result.err;
      EXPECT_EQ(result.out, "") << message;
      EXPECT_TRUE(has(result.err, message));
      EXPECT_TRUE(is_one_line(result.err)) << result.err;
    }
  }
  /// Returns the report of a run with this exit status, which prints nothing else.
  json report(const Words& arguments, int exit_code = 0) const {
    const Finished result = run(arguments + Words{"--json", "-"});
    EXPECT_EQ(result.exit_code(), exit_code) << result.err;
    EXPECT_TRUE(exit_code != 0 || result.err.empty()) << result.err;
    return json::parse(result.out, nullptr, false);
  }
  /// Returns the words of `compare` on the tiny config.
  static Words compare(const Words& settings, const Words& rest = {}) {
    Words arguments = {"compare", kTiny};
    for (const std::string& setting : settings) arguments = arguments + Words{"--set", setting};
    return arguments + rest;
  }
  /// Returns the numbers of a tensor in a file, of any type.
  std::vector<double> numbers_of(const std::string& file, const std::string& name,
                                 const std::vector<int64_t>& shape = {}) const {
    const io::SafetensorsFile opened(path(file));
    const io::Tensor* const tensor = opened.find(name);
    if (!tensor) return ADD_FAILURE() << "no " << name, std::vector<double>();
    EXPECT_TRUE(shape.empty() || tensor->shape == shape) << name << " " << tensor->shape_text();
    std::vector<double> out(static_cast<size_t>(tensor->elements()));
    if (tensor->is_float()) return io::convert_floats(*tensor, DType::kFloat64, out.data()), out;
    if (tensor->is_integer()) {
      const std::vector<int64_t> values = io::read_integers(*tensor);
      return {values.begin(), values.end()};
    }
    const auto flags = io::read_flags(*tensor);
    return {flags.begin(), flags.end()};
  }
  // Writes seeded tensors and returns their arguments: hidden [6, 5], head [7, 5] or [5, 7], targets [6].
  Words write_tensors(bool tall = true, float poison = 0) const;
};

inline Words CliTest::write_tensors(bool tall, float poison) const {
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
