// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes of `compare`: what happens when one of them is killed or interrupted.
#include "cli_fixture.h"

namespace logitless::testing {
namespace {

bool is_alive(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t after_name = line.rfind(") ");
  return after_name != std::string::npos && line[after_name + 2] != 'Z' && line[after_name + 2] != 'X';
}

// Whether a contender has mapped its outputs, or is gone.
bool is_at_work(pid_t contender) {
  std::ostringstream maps;
  maps << std::ifstream("/proc/" + std::to_string(contender) + "/maps").rdbuf();
  return maps.str().find("memfd:logitless-d_hidden") != std::string::npos || !is_alive(contender);
}

// The processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent) {
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

// The first contender that `command` starts; 0 when it ends without one.
pid_t wait_for_child(pid_t command) {
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(command), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0) {
    const std::vector<pid_t> children = children_of(command);
    if (!children.empty()) return children.front();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

TEST_F(CliTest, AContenderThatIsKilledExitsWithThree) {
  const pid_t command = start({"compare", kTiny, "--repeat", "1000000", "--json", path("report.json")});
  const pid_t contender = wait_for_child(command);
  ASSERT_GT(contender, 0);
  ASSERT_EQ(kill(contender, SIGKILL), 0);
  const Finished result = finish(command);
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_TRUE(has(result.err, "process was killed by signal 9 (Killed)")) << result.err;
  EXPECT_TRUE(is_one_line(result.err)) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(std::filesystem::exists(path("report.json")));
}

TEST_F(CliTest, AnInterruptEndsTheContenderAndLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t command = start({"compare", kTiny, "--set", "seq_len=20000", "--json", path("report.json")});
    const pid_t contender = wait_for_child(command);
    ASSERT_GT(contender, 0);
    ASSERT_EQ(kill(command, signal), 0);
    const Finished result = finish(command);
    ASSERT_TRUE(WIFSIGNALED(result.status)) << result.status;
    EXPECT_EQ(WTERMSIG(result.status), signal);
    EXPECT_NE(kill(contender, 0), 0);
    EXPECT_EQ(result.out, "");
    EXPECT_FALSE(std::filesystem::exists(path("report.json")));
  }
}

TEST_F(CliTest, AContenderDoesNotOutliveAKilledCommand) {
  const pid_t command = start({"compare", kTiny, "--set", "seq_len=20000"});
  const pid_t contender = wait_for_child(command);
  ASSERT_GT(contender, 0);
  // Stopped in the middle of its work it cannot end by itself: only the death of the command ends it.
  while (!is_at_work(contender)) std::this_thread::yield();
  ASSERT_EQ(kill(contender, SIGSTOP), 0);
  ASSERT_EQ(kill(command, SIGKILL), 0);
  finish(command);
  // Whoever adopted it may take a moment to bury it.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (is_alive(contender) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_alive(contender));
  kill(contender, SIGKILL);
}

}  // namespace
}  // namespace logitless::testing
