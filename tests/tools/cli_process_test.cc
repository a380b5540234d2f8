// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes of `compare`, if one of them is killed or interrupted.
#include "cli_fixture.h"
#include "processes.h"

namespace logitless::testing {
namespace cli_process_test {

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
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
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
  // A process stopped in the middle of its work cannot end by itself; only the death of the command ends it.
  wait_for_work(contender);
  ASSERT_EQ(kill(contender, SIGSTOP), 0);
  ASSERT_EQ(kill(command, SIGKILL), 0);
  finish(command);
  expect_gone(contender);
}

}  // namespace cli_process_test
}  // namespace logitless::testing
