// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless tune` and the commands that take its profile.
#include "cli_fixture.h"
#include "io/profile_file.h"
#include "processes.h"

namespace logitless::testing {
namespace {

// Far more than the turns of these shapes take, whatever else the machine does: the rounds are whole, and no
// test depends on its load.
const std::string kAmple = "1000";

class TuneTest : public CliTest {
 protected:
  TuneTest() { unsetenv("LOGITLESS_PROFILE"); }
  ~TuneTest() override { unsetenv("LOGITLESS_PROFILE"); }

  std::string profile() const { return path("p.yaml"); }
  std::vector<io::ProfileEntry> entries() const { return io::read_profile(profile()); }
  Finished tune(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"tune", kTiny, "--budget-s", kAmple};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all);
  }
  // Calls of some milliseconds.
  pid_t start_slow() const {
    return start({"tune", kTiny, "--set", "seq_len=400", "--budget-s", kAmple, "-o", profile()});
  }
  void wait_for_line(pid_t command, const std::string& line) const {
    while (read("err").find(line) == std::string::npos && !has_ended(command)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // A profile for the shape of tiny.yaml without its vocab_tile.
  void write_profile(int64_t row_tile, int64_t vocab_tile, PlanKind plan = PlanKind::kAuto,
                     const std::string& cpu = "") const {
    io::ProfileMachine machine = io::machine_of(Context());
    if (!cpu.empty()) machine.cpu = cpu;
    io::ProfileEntry entry = io::entry_for(machine, {134, 96, 2049}, size_t{256} << 20);
    entry.row_tile = row_tile;
    entry.vocab_tile = vocab_tile;
    entry.plan = plan;
    write("p.yaml", io::profile_text({entry}));
  }
};

TEST_F(TuneTest, WritesAnEntryForThisMachineAndShape) {
  const Finished result = tune({"-o", profile()});
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  for (const char* text : {"plans", "trial", "final", "default", "/ default"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text;
  }
  ASSERT_EQ(entries().size(), 1u);
  const io::ProfileEntry entry = entries().front();
  EXPECT_EQ(entry.machine, io::machine_of(Context()));
  EXPECT_EQ(entry.tokens, (io::SizeRange{67, 268}));
  EXPECT_EQ(entry.hidden_size, (io::SizeRange{48, 192}));
  EXPECT_EQ(entry.vocab_size, (io::SizeRange{1025, 4098}));
  EXPECT_EQ(entry.task, "cross_entropy");
  EXPECT_GT(entry.default_s, 0);
  EXPECT_LE(entry.tuned_s, entry.default_s);
  // What it chose runs, and the answer is right.
  const Finished compared = run({"compare", kTiny, "--profile", profile()});
  EXPECT_EQ(compared.exit_code(), 0) << compared.err;
}

TEST_F(TuneTest, KeepsEntriesOfOtherShapesAndReplacesItsOwn) {
  ASSERT_EQ(tune({"-o", profile(), "--quiet"}).exit_code(), 0);
  ASSERT_EQ(tune({"-o", profile(), "--quiet", "--set", "model.dtype=bfloat16"}).exit_code(), 0);
  ASSERT_EQ(entries().size(), 2u);
  ASSERT_EQ(tune({"-o", profile(), "--quiet"}).exit_code(), 0);
  ASSERT_EQ(entries().size(), 2u);
  EXPECT_EQ(entries()[0].dtype, DType::kBFloat16);
  EXPECT_EQ(entries()[1].dtype, DType::kFloat32);
}

TEST_F(TuneTest, RunsEveryTaskAndLevel) {
  const std::string configs = std::filesystem::path(kTiny).parent_path().string() + "/";
  for (const char* name :
       {"tiny-policy_loss", "tiny-preference_loss", "tiny-kto_loss", "gradcheck/cross_entropy-logits-tiny"}) {
    const std::string config = configs + name + ".yaml";
    const Finished result = run({"tune", config, "--budget-s", kAmple, "-o", profile(), "--quiet"});
    EXPECT_EQ(result.exit_code(), 0) << name << ": " << result.err;
  }
  EXPECT_EQ(entries().back().hidden_size, (io::SizeRange{0, 0}));
}

TEST_F(TuneTest, StandardOutputIsTheProfileAlone) {
  const Finished result = tune({"-o", "-"});
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  write("p.yaml", result.out);
  EXPECT_EQ(entries().size(), 1u);
}

TEST_F(TuneTest, ErrorsNameWhatIsWrongAndLeaveTheFile) {
  const std::string config = write("c.yaml", "model: {hidden_size: 8, vocab_size: 9}\nseq_len: 4\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{kTiny, "--set", "kernel.plan=two_pass"}, "--set kernel.plan cannot be set: tune chooses it"},
      {{write("dense.yaml", "model: {hidden_size: 8, vocab_size: 9}\nkernel: {plan: dense}\n")},
       "kernel.plan is dense, which has no plan"},
      {{kTiny, "--set", "tolerances.loss_atol=1"}, "tolerances.loss_atol has no effect on tune"},
      {{kTiny, "--set", "top_k=5"}, "--set top_k has no effect on tune, which lists no largest logits"},
      {{kTiny, "--budget-s", "0"}, "--budget-s"},
      {{kTiny, "--budget-s", "nan"}, "--budget-s: must be a number from 1"},
      // No core makes these 35 GFLOP a call, fifteen times, within a second.
      {{kTiny, "--budget-s", "1", "--set", "model.vocab_size=50000", "--set", "seq_len=600", "--set", "threads=1"},
       "--budget-s 1: is too short"},
      {{kTiny, "--set", "kernel.workspace=1KiB"}, "the config does not run with its kernel keys left out"},
      {{config}, "4 tokens and 9 vocabulary entries make one small tile: there is nothing to tune"},
      {{kTiny, "--profile", profile()}, "--profile"},
      {{}, "hidden_size"},
  };
  write("p.yaml", "profiles: []\n");
  for (const auto& [arguments, message] : cases) {
    std::vector<std::string> all = {"tune", "-o", profile()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished result = run(all);
    EXPECT_EQ(result.exit_code(), 2) << message << "\n" << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
    EXPECT_EQ(read("p.yaml"), "profiles: []\n");
  }
  const Finished own = run({"tune", config, "-o", config});
  EXPECT_EQ(own.exit_code(), 2);
  EXPECT_NE(own.err.find("is the config"), std::string::npos) << own.err;
  const Finished foreign = tune({"-o", write("model.yaml", "model: {}\n")});
  EXPECT_EQ(foreign.exit_code(), 2);
  EXPECT_NE(foreign.err.find("-o " + path("model.yaml") + ":1: model is not a known key of a profile"),
            std::string::npos)
      << foreign.err;
  EXPECT_EQ(read("model.yaml"), "model: {}\n");
  const Finished silent = tune({"--quiet"});
  EXPECT_EQ(silent.exit_code(), 2);
  EXPECT_NE(silent.err.find("--quiet needs -o FILE"), std::string::npos) << silent.err;
  const Finished full = tune({"--quiet", "-o", "/dev/full"});
  EXPECT_EQ(full.exit_code(), 2);
  EXPECT_NE(full.err.find("-o /dev/full: cannot be written: No space left"), std::string::npos) << full.err;
}

TEST_F(TuneTest, AnInterruptionInAnyRoundLeavesTheFileAndNoChild) {
  write_profile(32, 128);
  const std::string before = read("p.yaml");
  for (const std::string round : {"plans:", "trial:", "final:"}) {
    pid_t command = 0, child = 0;
    // On a busy machine the command may be done before this process gets its turn: then once more.
    for (int i = 0; i < 20 && child == 0; ++i) {
      if (command > 0) finish(command);
      write("p.yaml", before);
      command = start_slow();
      wait_for_line(command, round);
      child = wait_for_child(command);
    }
    ASSERT_GT(child, 0) << round;
    ASSERT_EQ(kill(command, round == "trial:" ? SIGTERM : SIGINT), 0);
    const Finished result = finish(command);
    EXPECT_TRUE(WIFSIGNALED(result.status)) << round << " " << result.status;
    EXPECT_FALSE(is_alive(child)) << round;
    EXPECT_EQ(read("p.yaml"), before) << round;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 3) << "out, err and the profile";
}

TEST_F(TuneTest, KeepsWhatAnotherTuneHasWrittenMeanwhile) {
  const pid_t command = start_slow();
  wait_for_line(command, "plans:");
  // Held, it cannot end before the other entry is there.
  ASSERT_EQ(kill(command, SIGSTOP), 0);
  ASSERT_FALSE(has_ended(command));
  write_profile(32, 128);
  ASSERT_EQ(kill(command, SIGCONT), 0);
  const Finished result = finish(command);
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(entries().size(), 2u);
}

// tiles of the fused side, which compare reports
TEST_F(TuneTest, EveryCommandTakesAProfile) {
  write_profile(32, 128, PlanKind::kTwoPass);
  const std::string used = "profile " + profile() + ": kernel.plan=two_pass kernel.row_tile=32";
  const Finished compared = run({"compare", kTiny, "--profile", profile(), "--json", path("compare.json")});
  EXPECT_EQ(compared.exit_code(), 0) << compared.err;
  EXPECT_NE(compared.err.find(used + "; kernel.vocab_tile=256 is the config's and stays\n"), std::string::npos)
      << compared.err;
  EXPECT_NE(read("compare.json").find("two_pass: 134 of 134 rows in chunks of 134, tiles 32 x 256"), std::string::npos)
      << read("compare.json");
  const Finished checked = run({"gradcheck", kTiny, "--profile", profile()});
  EXPECT_EQ(checked.exit_code(), 0) << checked.err;
  EXPECT_NE(checked.err.find(used), std::string::npos) << checked.err;
  const Finished scored = run({"score", kTiny, "-o", path("s"), "--profile", profile()});
  EXPECT_EQ(scored.exit_code(), 0) << scored.err;
  EXPECT_NE(scored.err.find(used), std::string::npos) << scored.err;
  const Finished measured =
      run({"bench", kTiny, "--iters", "1", "--contenders", "auto", "-o", path("b"), "--profile", profile()});
  EXPECT_EQ(measured.exit_code(), 0) << measured.err;
  EXPECT_NE(measured.out.find(used), std::string::npos) << measured.out;
  EXPECT_NE(read("b").find("\"plan\":\"two_pass\""), std::string::npos) << read("b");
  EXPECT_NE(read("b").find("\"profiles\":[\"the config's point: " + used), std::string::npos) << read("b");
}

TEST_F(TuneTest, TheEnvironmentNamesAProfileAndTheFlagComesFirst) {
  write_profile(32, 0);
  setenv("LOGITLESS_PROFILE", profile().c_str(), 1);
  EXPECT_NE(run({"compare", kTiny}).err.find("kernel.row_tile=32"), std::string::npos);
  setenv("LOGITLESS_PROFILE", "not-there.yaml", 1);
  EXPECT_NE(run({"compare", kTiny}).err.find("LOGITLESS_PROFILE not-there.yaml: cannot be opened"), std::string::npos);
  EXPECT_EQ(run({"compare", kTiny}).exit_code(), 2);
  for (const char* command : {"info", "--version"}) EXPECT_EQ(run({command}).exit_code(), 0);
  EXPECT_NE(run({"compare", kTiny, "--profile", profile()}).err.find("kernel.row_tile=32"), std::string::npos);
  // It measures against the default, whatever the environment says.
  EXPECT_EQ(tune({}).exit_code(), 0);
}

TEST_F(TuneTest, AProfileOfAnotherMachineIsNotUsedAndTheCommandSaysSo) {
  write_profile(32, 0, PlanKind::kAuto, "another CPU");
  const Finished result = run({"compare", kTiny, "--profile", profile(), "--json", path("compare.json")});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_NE(result.err.find("not used: it was made on another machine (CPU another CPU there and "), std::string::npos)
      << result.err;
  EXPECT_NE(read("compare.json").find("tiles 134 x 256"), std::string::npos) << read("compare.json");
}

TEST_F(TuneTest, WhatTheConfigSetsStays) {
  write_profile(32, 512);
  const Finished result = run({"compare", kTiny, "--set", "kernel.row_tile=16", "--profile", profile()});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_NE(result.err.find("leaves all as it is; kernel.row_tile=16 is the config's and stays"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace logitless::testing
