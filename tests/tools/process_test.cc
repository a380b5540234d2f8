// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The processes of `compare` and `bench`: interrupted, killed, two at once.
#include "bench_fixture.h"
#include "processes.h"

namespace logitless::testing {
namespace process_test {

TEST_F(CliTest, AContenderThatIsKilledExitsWithThree) {
  const pid_t command = start(compare({}, {"--repeat", "1000000", "--json", path("report.json")}));
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

TEST_F(CliTest, AContenderDoesNotOutliveAKilledCommand) {
  const pid_t command = start(compare({"seq_len=20000"}));
  const pid_t contender = wait_for_child(command);
  ASSERT_GT(contender, 0);
  // A process stopped in the middle of its work cannot end by itself; only the death of the command ends it.
  wait_for_work(contender);
  ASSERT_EQ(kill(contender, SIGSTOP), 0);
  ASSERT_EQ(kill(command, SIGKILL), 0);
  finish(command);
  expect_gone(contender);
}

class BenchProcessTest : public BenchTest {
 protected:
  // The last point takes long.
  const Words sweep_ = bench(small_, {"--sweep", "seq_len=4,6,60000", "-o", path("run.jsonl")});

  /// Waits for the process of the last point and returns it; 0 if the command has ended.
  pid_t wait_for_last_point(pid_t command) const {
    while (std::ranges::count(read("run.jsonl"), '\n') < 3 && !has_ended(command)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return wait_for_child(command);
  }
  // Sends a signal to the command or, as the terminal may, only to the process of its last point.
  void interrupt(int signal, bool point_alone) {
    std::filesystem::remove(path("run.jsonl"));
    const pid_t command = start(sweep_);
    const pid_t point = wait_for_last_point(command);
    ASSERT_GT(point, 0);
    ASSERT_EQ(kill(point_alone ? point : command, signal), 0);
    const Finished result = finish(command);
    ASSERT_TRUE(WIFSIGNALED(result.status)) << result.status;
    EXPECT_EQ(WTERMSIG(result.status), signal);
    expect_gone(point);
    EXPECT_EQ(read_run("run.jsonl").points.size(), 2u);
  }
};

TEST_F(BenchProcessTest, AnInterruptedRunIsCompletedByTheNextOne) {
  interrupt(SIGINT, /*point_alone=*/true);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) interrupt(signal, /*point_alone=*/false);
  const std::string before = read("run.jsonl");
  const Finished rest = run(sweep_);
  ASSERT_EQ(rest.exit_code(), 0) << rest.err;
  EXPECT_EQ(read("run.jsonl").substr(0, before.size()), before);
  const io::BenchRun whole = read_run("run.jsonl");
  ASSERT_EQ(whole.points.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(whole.points[i].at[0], whole.sweep[0].values[i]);
}

TEST_F(BenchProcessTest, AContenderThatIsKilledIsAResultAndTheOthersGoOn) {
  const pid_t command = start({"bench", small_, "--iters", "1000000", "-o", path("run.jsonl")});
  int kills = 0;
  while (const pid_t point = wait_for_child(command)) {
    kills += kill(point, SIGKILL) == 0;
    expect_gone(point);
  }
  EXPECT_EQ(finish(command).exit_code(), 3);
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

}  // namespace process_test
}  // namespace logitless::testing
