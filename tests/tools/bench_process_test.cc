// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes of `logitless bench`: interrupted, killed, two at once.
#include "bench_fixture.h"
#include "processes.h"

namespace logitless::testing {
namespace bench_process_test {

class BenchProcessTest : public BenchTest {
 protected:
  // The last point takes long.
  const std::vector<std::string> sweep_ = words(small_, {"--sweep", "seq_len=4,6,60000", "-o", path("run.jsonl")});

  size_t lines() const {
    const std::string text = read("run.jsonl");
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  /// Waits for the process of the last point and returns it; 0 if the command has ended.
  pid_t wait_for_last_point(pid_t command) const {
    while (lines() < 3 && !has_ended(command)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return wait_for_child(command);
  }
};

TEST_F(BenchProcessTest, AnInterruptedRunIsCompletedByTheNextOne) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    std::filesystem::remove(path("run.jsonl"));
    const pid_t command = start(sweep_);
    const pid_t point = wait_for_last_point(command);
    ASSERT_GT(point, 0);
    ASSERT_EQ(kill(command, signal), 0);
    const Finished result = finish(command);
    ASSERT_TRUE(WIFSIGNALED(result.status)) << result.status;
    EXPECT_EQ(WTERMSIG(result.status), signal);
    expect_gone(point);
    EXPECT_EQ(read_run("run.jsonl").points.size(), 2u);

    const std::string before = read("run.jsonl");
    const Finished rest = run(sweep_);
    ASSERT_EQ(rest.exit_code(), 0) << rest.err;
    EXPECT_EQ(read("run.jsonl").substr(0, before.size()), before);
    const io::BenchRun whole = read_run("run.jsonl");
    ASSERT_EQ(whole.points.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(whole.points[i].at[0], whole.sweep[0].values[i]);
  }
}

TEST_F(BenchProcessTest, AContenderThatIsKilledIsAResultAndTheOthersGoOn) {
  const pid_t command = start({"bench", small_, "--iters", "1000000", "-o", path("run.jsonl")});
  int kills = 0;
  while (const pid_t point = wait_for_child(command)) {
    kills += kill(point, SIGKILL) == 0;
    expect_gone(point);
  }
  const Finished result = finish(command);
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_GE(kills, 1);
  const io::BenchRun run = read_run("run.jsonl");
  ASSERT_EQ(run.points.size(), 1u);
  ASSERT_EQ(run.points[0].measurements.size(), 3u);
  for (const io::Measurement& m : run.points[0].measurements) {
    EXPECT_TRUE(has(m.error, "its process was killed by signal 9 (Killed)"));
  }
}

TEST_F(BenchProcessTest, OneRunAtATimeWritesAFile) {
  const pid_t first = start(sweep_);
  const pid_t point = wait_for_last_point(first);
  ASSERT_GT(point, 0);
  ASSERT_EQ(kill(first, SIGSTOP), 0);
  const std::string before = read("run.jsonl");
  // Both write their output to the same files, but the first one has already written its own.
  const Finished second = run(sweep_);
  EXPECT_EQ(second.exit_code(), 2);
  EXPECT_TRUE(has(second.err, "another bench is writing to it"));
  EXPECT_EQ(read("run.jsonl"), before);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  finish(first);
  expect_gone(point);
}

TEST_F(BenchProcessTest, AnInterruptThatReachesThePointAloneEndsTheCommandToo) {
  // Ctrl-C goes to all processes of a terminal, and the point may end before the command notices.
  const pid_t command = start(sweep_);
  const pid_t point = wait_for_last_point(command);
  ASSERT_GT(point, 0);
  ASSERT_EQ(kill(point, SIGINT), 0);
  const Finished result = finish(command);
  ASSERT_TRUE(WIFSIGNALED(result.status)) << result.status;
  EXPECT_EQ(WTERMSIG(result.status), SIGINT);
  EXPECT_EQ(read_run("run.jsonl").points.size(), 2u);
}

}  // namespace bench_process_test
}  // namespace logitless::testing
