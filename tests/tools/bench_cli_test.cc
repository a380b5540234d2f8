// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless bench` from a user's view: measurements, output, refusals.
#include "bench_fixture.h"

namespace logitless::testing {
namespace bench_cli_test {

Words names_of(const json& point) {
  Words names;
  for (const json& contender : point["contenders"]) names.push_back(contender["name"]);
  return names;
}

TEST_F(BenchTest, ASweepIsTheProductOfItsLists) {
  const Finished result = run(bench(small_, {"--sweep", "seq_len=4,6", "--sweep", "temperature=1, [0.5, 2]", "--set",
                                             "batch_size=2", "-o", path("run.jsonl")}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const io::BenchRun run = read_run("run.jsonl");
  ASSERT_EQ(run.sweep.size(), 2u);
  EXPECT_EQ(run.sweep[1].key, "temperature");
  EXPECT_EQ(run.sweep[1].values, Words({"1", "[0.5, 2]"}));
  ASSERT_EQ(run.points.size(), 4u);
  EXPECT_EQ(run.points[1].at, Words({"4", "[0.5, 2]"}));
  EXPECT_EQ(run.points[3].at, Words({"6", "[0.5, 2]"}));
  EXPECT_EQ(lines_of("run.jsonl")[4]["shape"]["tokens"], 12);
  EXPECT_EQ(run.settings, Words({"level=logits", "model.vocab_size=300", "seq_len=8", "batch_size=2"}));
  EXPECT_TRUE(has(result.err, "point 4 of 4: seq_len=6 temperature=[0.5, 2]\n"));
  EXPECT_TRUE(has(result.out, "\nseq_len=4 temperature=1\n"));
}

TEST_F(BenchTest, AContenderMayHaveKeysOfItsOwn) {
  const Words names = {"auto:threads=1", "auto:threads=2:kernel.plan=two_pass"};
  ASSERT_EQ(run({"bench", kTiny, "--contenders", names[0] + "," + names[1], "-o", path("run.jsonl")}).exit_code(), 0);
  const json point = lines_of("run.jsonl").at(1);
  EXPECT_EQ(names_of(point), names);
  EXPECT_EQ(point["contenders"][0]["plan"], "one_pass");
  EXPECT_EQ(point["contenders"][1]["plan"], "two_pass");
}

TEST_F(BenchTest, ALineHoldsWhatAContenderTook) {
  const Finished result = run({"bench", kTiny, "--set", "threads=1", "--contenders",
                               "dense,auto,one_pass,two_pass,forward", "--iters", "3", "-o", path("run.jsonl")});
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const std::vector<json> lines = lines_of("run.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["iters"], 3);
  EXPECT_EQ(lines[0]["warmup"], 1);
  EXPECT_EQ(lines[0]["inputs"], "random");
  EXPECT_EQ(lines[0]["environment"]["threads"], 1);
  const json& point = lines[1];
  EXPECT_EQ(point["at"], json::object());
  EXPECT_EQ(point["task"], "cross_entropy");
  EXPECT_EQ(point["level"], "fused");
  EXPECT_GT(point["gemm_rate_flops"].get<double>(), 0);
  EXPECT_EQ(names_of(point), Words({"dense", "auto", "one_pass", "two_pass", "forward"}));
  const Words plans = {"dense", "one_pass", "one_pass", "two_pass", "forward_only"};
  for (size_t i = 0; i < plans.size(); ++i) {
    const json& c = point["contenders"][i];
    EXPECT_EQ(c["status"], "ok");
    EXPECT_EQ(c["plan"], plans[i]);
    EXPECT_NEAR(c["loss"].get<double>(), point["contenders"][0]["loss"].get<double>(), 1e-5);
    std::vector<double> times = c["times_s"];
    ASSERT_EQ(times.size(), 3u);
    std::sort(times.begin(), times.end());
    EXPECT_GT(times[0], 0);
    EXPECT_EQ(c["median_s"], times[1]);
    EXPECT_NEAR(c["spread_s"].get<double>(), (times[2] - times[0]) / 4, 1e-9);
    EXPECT_GT(c["first_s"].get<double>(), 0);
    EXPECT_GT(c["gemm_efficiency"].get<double>(), 0);
    EXPECT_GT(c["workspace_bytes"].get<int64_t>(), 0);
    EXPECT_TRUE(c["extra_peak_bytes"].is_number_integer());
  }
}

TEST_F(BenchTest, LogitsAreMeasuredApartAndInPlace) {
  ASSERT_EQ(run(bench(small_, {"-o", path("run.jsonl"), "--iters", "2"})).exit_code(), 0);
  const json point = lines_of("run.jsonl").at(1);
  EXPECT_EQ(point["level"], "logits");
  EXPECT_FALSE(point.contains("gemm_rate_flops"));
  EXPECT_EQ(names_of(point), Words({"dense", "apart", "in_place"}));
  for (const json& c : point["contenders"]) {
    EXPECT_EQ(c["status"], "ok");
    // In place, the first turn replaces the logits by their gradient; without a copy, the second turn would
    // start from it.
    EXPECT_NEAR(c["loss"].get<double>(), point["contenders"][0]["loss"].get<double>(), 1e-6);
  }
}

TEST_F(BenchTest, AContenderThatCannotRunIsAResult) {
  const Words little = {"--set", "threads=1", "--set", "kernel.workspace=4KiB", "--contenders"};
  const Finished some = run(bench(kTiny, little + Words{"dense,one_pass", "-o", path("run.jsonl")}));
  EXPECT_EQ(some.exit_code(), 0) << some.err;
  EXPECT_TRUE(has(some.out, "one_pass   failed: workspace_bytes = 4096 is too small"));
  const json point = lines_of("run.jsonl").at(1);
  EXPECT_EQ(point["contenders"][0]["status"], "ok");
  EXPECT_EQ(point["contenders"][1]["status"], "error");
  EXPECT_TRUE(has(point["contenders"][1]["message"], "is too small"));

  const Finished none = run(bench(kTiny, little + Words{"one_pass"}));
  EXPECT_EQ(none.exit_code(), 3);
  EXPECT_TRUE(has(none.err, "no contender ran at some point of the sweep"));
}

TEST_F(BenchTest, StandardOutputHoldsTheLinesOrTheTables) {
  const Finished lines = run(bench(small_, {"--output", "-"}));
  EXPECT_EQ(lines.exit_code(), 0);
  EXPECT_EQ(lines.err, "point 1 of 1: the config's point\n");
  EXPECT_EQ(io::parse_run("-", lines.out).points.size(), 1u);
  const Finished tables = run(bench(small_, {}));
  EXPECT_TRUE(has(tables.out, "cross_entropy: 8 tokens"));
  EXPECT_TRUE(has(tables.out, "\nin_place "));
  EXPECT_FALSE(has(tables.out, "\033"));
  const Finished quiet = run(bench(small_, {"--quiet", "-o", path("run.jsonl")}));
  EXPECT_EQ(quiet.out + quiet.err, "");
  EXPECT_EQ(read_run("run.jsonl").points.size(), 1u);
}

TEST_F(BenchTest, BadInputExitsWithTwoAndOneLineBeforeAnythingRuns) {
  write("text", "no benchmark\n");
  write("torn", "no benchmark");
  const Words out = {"-o", path("new.jsonl")};
  const std::vector<Refusal> refusals = {
      {{"--sweep", "seq_len=4,x"}, "--sweep seq_len must be an integer from 0"},
      {{"--sweep", "seq_len=4", "--sweep", "model.dtyp=float32"},
       "--sweep model.dtyp is not a known key; did you mean"},
      {{"--sweep", "seq_len"}, "--sweep seq_len: must have the form key=value"},
      {{"--sweep", "seq_len=4,,6"}, "value 2 is empty"},
      {{"--sweep", "seq_len=4, 6 #, 8"}, "--sweep seq_len=4, 6 #, 8: a # begins a comment"},
      {{"--sweep", "seq_len=4, 4"}, "--sweep seq_len=4, 4: 4 is given twice"},
      {{"--sweep", "seq_len=4", "--sweep", "seq_len=6"}, "--sweep seq_len sets it as well"},
      {{"--sweep", "seq_len=4", "--set", "seq_len=6"}, "--set seq_len has no effect: --sweep seq_len sets it"},
      {{"--sweep", "level=logits,fused"}, "model.hidden_size is not given"},
      {{"--sweep", "tolerances.loss_atol=1"}, "--sweep tolerances.loss_atol has no effect on bench"},
      {{"--contenders", "dense,one_pass"}, "--contenders one_pass: level logits has dense, apart, in_place"},
      {{"--margin", "1"}, "--margin requires"},
      {{"--margin", "nan", "--against", path("text")}, "--margin: must be a number from 0"},
      {{"-o", folder_.string()}, "is a directory"},
      {{"-o", path("no/such/folder.jsonl")}, "cannot be written"},
      {{"-o", path("text")}, "text:1: is not JSON"},
      {{"-o", path("torn")}, "torn: is not a file of bench"},
      {{"-o", small_, "--overwrite"}, "is the config"},
      {{"--against", path("absent.jsonl")}, "absent.jsonl: cannot be opened: No such file"},
      {{"--against", path("text")}, "text:1: is not JSON"},
  };
  for (const Refusal& one : refusals) {
    const bool names_output = std::find(one.arguments.begin(), one.arguments.end(), "-o") != one.arguments.end();
    expect_refusals({{one.arguments + (names_output ? Words{} : out), one.message}},
                    {"bench", small_, "--sweep", "threads=1"});
  }
  expect_refusals({{{"bench", small_, "--overwrite"}, "--overwrite requires --output"},
                   {{"bench", kTiny, "--contenders", "auto:seq_len=4"},
                    "--contenders auto:seq_len=4: seq_len=4 cannot be set for one contender"},
                   {{"bench", kTiny, "--contenders", "auto:kernel.plan=none"},
                    "auto:kernel.plan=none: --set kernel.plan must be auto, one_pass, two_pass or expected_row"}});
  EXPECT_FALSE(std::filesystem::exists(path("new.jsonl")));
  EXPECT_EQ(read("text"), "no benchmark\n");
  EXPECT_EQ(read("torn"), "no benchmark");
}

}  // namespace bench_cli_test
}  // namespace logitless::testing
