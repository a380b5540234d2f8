// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The files of `logitless bench`: continuing one, and comparing two.
#include "bench_fixture.h"

namespace logitless::testing {
namespace bench_file_test {

class BenchFileTest : public BenchTest {
 protected:
  // Two points in run.jsonl. Running the same command again measures nothing.
  const Words sweep_ = {"--sweep", "seq_len=4,6", "-o", path("run.jsonl")};

  void SetUp() override { ASSERT_EQ(again({}).exit_code(), 0); }

  Finished again(const Words& more) const { return run(bench(small_, sweep_ + more)); }
  /// Compares run.jsonl with a changed copy of itself.
  Finished against(const std::function<void(std::vector<json>&)>& change, const Words& more = {}) {
    std::vector<json> lines = lines_of("run.jsonl");
    change(lines);
    write_lines("old.jsonl", lines);
    return again(Words{"--against", path("old.jsonl")} + more);
  }
};

json& contender(std::vector<json>& lines, size_t point, size_t index) { return lines[point + 1]["contenders"][index]; }

TEST_F(BenchFileTest, AFinishedRunIsNotMeasuredAgain) {
  const std::string before = read("run.jsonl");
  const Finished result = again({});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "2 of 2 points are in " + path("run.jsonl") + " already\n");
  EXPECT_EQ(read("run.jsonl"), before);
}

TEST_F(BenchFileTest, MissingAndTornLinesAreMeasuredAgain) {
  const std::string whole = read("run.jsonl");
  const size_t header = whole.find('\n') + 1, first = whole.find('\n', header) + 1;
  for (const size_t bytes : {first, first + 1, first + 40, whole.size() - 1}) {
    write("run.jsonl", whole.substr(0, bytes));
    const Finished result = again({});
    ASSERT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_TRUE(has(result.err, "1 of 2 points are in "));
    EXPECT_EQ(read("run.jsonl").substr(0, first), whole.substr(0, first));
    const io::BenchRun run = read_run("run.jsonl");
    ASSERT_EQ(run.points.size(), 2u);
    EXPECT_EQ(run.points[1].at, std::vector<std::string>{"6"});
  }
  // Only a header, and an empty file.
  for (const size_t bytes : {header, size_t{0}}) {
    write("run.jsonl", whole.substr(0, bytes));
    ASSERT_EQ(again({}).exit_code(), 0);
    EXPECT_EQ(read_run("run.jsonl").points.size(), 2u);
  }
}

TEST_F(BenchFileTest, AnotherBenchmarkIsNotContinued) {
  const std::string before = read("run.jsonl");
  const std::string cure = "choose another file, or --overwrite to replace it";
  const std::pair<Words, std::string> cases[] = {
      {{"--iters", "2", "--sweep", "seq_len=4,6"}, "--iters is 1 there and 2 here"},
      {{"--sweep", "seq_len=4,6", "--set", "seed=3"}, "seed is not set there and 3 here"},
      {{"--sweep", "seq_len=4,6", "--contenders", "dense"},
       "--contenders is dense,apart,in_place there and dense here"},
  };
  for (const auto& [rest, message] : cases) {
    const Words words = bench(small_, rest + Words{"-o", path("run.jsonl")});
    expect_refusals({{words, message}, {words, cure}});
    EXPECT_EQ(read("run.jsonl"), before);
  }
  // Nor a file of another machine, nor one with an invalid line.
  std::vector<json> lines = lines_of("run.jsonl");
  lines[0]["environment"]["cpu"] = "Example CPU";
  write_lines("run.jsonl", lines);
  EXPECT_TRUE(has(again({}).err, "cpu is Example CPU there and "));
  write("run.jsonl", before + "{}\n");
  EXPECT_TRUE(has(again({}).err, "run.jsonl:4: type is missing"));

  const Finished anew = again({"--overwrite"});
  EXPECT_EQ(anew.exit_code(), 0);
  EXPECT_EQ(read_run("run.jsonl").points.size(), 2u);
}

TEST_F(BenchFileTest, GrowthBeyondBothSpreadsAndTheMarginExitsWithOne) {
  // The figures are exact: they come from the files, not from a clock.
  std::vector<json> now = lines_of("run.jsonl");
  for (size_t point : {0, 1}) {
    for (size_t i : {0, 1, 2}) {
      contender(now, point, i)
          .update({{"median_s", 1.0},
                   {"spread_s", 0.125},
                   {"extra_peak_bytes", 64 << 20},
                   {"extra_peak_spread_bytes", 1 << 20},
                   {"workspace_bytes", 32 << 20}});
    }
  }
  write_lines("run.jsonl", now);
  const std::tuple<const char*, json, const char*> cases[] = {
      // 1.0 is above 0.7 + 0.05 * 0.7 + 0.125 + 0.125, but not above 0.75 + 0.0375 + 0.25.
      {"median_s", 0.70, "SLOWER"},
      {"median_s", 0.75, ""},
      {"median_s", 1.40, "faster"},
      {"extra_peak_bytes", 58 << 20, "LARGER peak"},  // 64 > 58 + 2.9 + 2 MiB
      {"extra_peak_bytes", 60 << 20, ""},             // 64 < 60 + 3 + 2
      {"extra_peak_bytes", 80 << 20, "smaller peak"},
      {"workspace_bytes", 30 << 20, "LARGER workspace"},  // 32 > 30 + 1.5 + 0.25
      {"workspace_bytes", 31 << 20, ""},                  // 32 < 31 + 1.55 + 0.25
  };
  for (const auto& [key, before, verdict] : cases) {
    const Finished result = against([&](std::vector<json>& old) { contender(old, 1, 1)[key] = before; });
    const bool grew = std::string(verdict).find("ER") != std::string::npos;
    EXPECT_EQ(result.exit_code(), grew ? 1 : 0) << key << " " << before;
    for (const char* other : {"SLOWER", "LARGER peak", "LARGER workspace", "faster", "smaller peak"}) {
      EXPECT_EQ(static_cast<bool>(has(result.out, other)), other == std::string(verdict)) << key << " " << before;
    }
  }
  const auto slower = [](std::vector<json>& old) { contender(old, 0, 2)["median_s"] = 0.5; };
  EXPECT_EQ(against(slower).exit_code(), 1);
  EXPECT_EQ(against(slower, {"--margin", "0.6"}).exit_code(), 0);
}

TEST_F(BenchFileTest, AContenderThatFailsNowIsWorse) {
  std::vector<json> now = lines_of("run.jsonl");
  const json ran = contender(now, 0, 1);
  contender(now, 0, 1) = {{"name", "apart"}, {"status", "error"}, {"message", "out of memory"}};
  write_lines("run.jsonl", now);
  const Finished worse = against([&](std::vector<json>& old) { contender(old, 0, 1) = ran; });
  EXPECT_EQ(worse.exit_code(), 1);
  EXPECT_TRUE(has(worse.out, "seq_len=4, apart: ran before and fails now: out of memory\n"));
  EXPECT_EQ(against([](std::vector<json>&) {}).exit_code(), 0);
}

// Settings without a layout do not define it, because the default was once [H, V] and is now [V, H].
TEST_F(BenchFileTest, ALayoutThatNoSettingNamesIsThePointsOwn) {
  const std::string fused = write("fused.yaml", "model: {hidden_size: 8, vocab_size: 300}\nseq_len: 8\n");
  ASSERT_EQ(run(bench(fused, {"--contenders", "forward", "-o", path("old.jsonl")})).exit_code(), 0);
  std::vector<json> old = lines_of("old.jsonl");
  old[1]["shape"]["layout"] = "hidden_vocab";
  write_lines("old.jsonl", old);

  const std::string differ = "model.layout is hidden_vocab there and vocab_hidden here";
  expect_refusals(
      {{bench(fused, {"--against", path("old.jsonl")}), "old.jsonl: has no point in common with this run: " + differ}});
  const Words same = {"--set", "model.layout=hidden_vocab", "--against", path("old.jsonl"), "--margin", "1000000"};
  EXPECT_EQ(run(bench(fused, same)).exit_code(), 0);
}

}  // namespace bench_file_test
}  // namespace logitless::testing
