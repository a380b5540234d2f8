// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Observes other processes.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace logitless::testing {

inline bool is_alive(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t after_name = line.rfind(") ");
  return after_name != std::string::npos && line[after_name + 2] != 'Z' && line[after_name + 2] != 'X';
}

// Returns the processes whose parent is `parent`.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) continue;
    std::ifstream in(entry.path() / "stat");
    std::string line;
    std::getline(in, line);
    const size_t after_name = line.rfind(") ");
    if (after_name == std::string::npos) continue;
    char state = 0;
    pid_t of = 0;
    std::istringstream(line.substr(after_name + 2)) >> state >> of;
    if (of == parent && state != 'Z') children.push_back(static_cast<pid_t>(std::stoi(name)));
  }
  return children;
}

// Returns whether a child has ended, without reaping it.
inline bool has_ended(pid_t child) {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != 0;
}

// Returns whether a process measures for its parent. The leak sanitizer also has a child, which must not be
// killed.
inline bool takes_turns(pid_t process) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/comm"), name);
  return name == "logitless-turns";
}

// Returns the first child that `command` starts for its work; 0 if it ends without one.
inline pid_t wait_for_child(pid_t command) {
  while (!has_ended(command)) {
    for (const pid_t child : children_of(command)) {
      if (takes_turns(child)) return child;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

// Waits until a child of the command uses more memory than its code and libraries, or is gone. It then knows
// its parent and is in the middle of its work.
inline void wait_for_work(pid_t child) {
  constexpr int64_t kPages = 60 << 8;  // 60 MiB
  const auto is_at_work = [&] {
    std::ifstream in("/proc/" + std::to_string(child) + "/statm");
    int64_t size = 0, resident = 0;
    in >> size >> resident;
    return resident > kPages;
  };
  while (!is_at_work() && is_alive(child)) std::this_thread::yield();
}

// Expects a process to end soon; its adoptive parent may take a moment to reap it.
inline void expect_gone(pid_t process) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (is_alive(process) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_alive(process));
  kill(process, SIGKILL);
}

}  // namespace logitless::testing
