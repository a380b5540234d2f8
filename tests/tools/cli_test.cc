// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The command from a user's view: exit status, standard output, standard error, and files.
#include "cli_fixture.h"
#include "io/config.h"
#include "logitless/version.h"

namespace logitless::testing {
namespace cli_test {

TEST_F(CliTest, CompareAgreesAndReportsItself) {
  const Finished result = run(compare({}, {"--json", path("report.json"), "--repeat", "3"}));
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.err, "");
  for (const char* part : {"tiny: 134 tokens, hidden 96, vocab 2049, float32, vocab_hidden", "medians of 3 runs each",
                           "\ndense ", "\nfused ", "loss_atol", "d_hidden_rel_l2", "d_weight_rel_l2", "pass",
                           "fused / dense: time ", "dense and fused agree\n"}) {
    EXPECT_TRUE(has(result.out, part));
  }
  EXPECT_FALSE(has(result.out, "FAIL") || has(result.out, "\033"));

  const json r = json::parse(read("report.json"));
  EXPECT_EQ(r["shape"],
            json({{"tokens", 134}, {"hidden", 96}, {"vocab", 2049}, {"dtype", "float32"}, {"layout", "vocab_hidden"}}));
  for (const char* contender : {"dense", "fused"}) {
    std::vector<double> times = r["details"][std::string(contender) + "_times_s"];
    ASSERT_EQ(times.size(), 3u);
    std::sort(times.begin(), times.end());
    EXPECT_EQ(r[contender]["time_s"], times[1]);
    EXPECT_GT(times[0], 0);
    EXPECT_TRUE(r[contender]["extra_peak_bytes"].is_number_integer());
    EXPECT_GT(r[contender]["loss"], 1);
  }
  EXPECT_GT(r["fused"]["workspace_bytes"], 0);
  EXPECT_TRUE(r["fused"]["plan"] == "one_pass" || r["fused"]["plan"] == "two_pass") << r["fused"]["plan"];
  for (const char* key : {"loss_abs", "d_hidden_max_abs", "d_hidden_rel_l2", "d_weight_rel_l2"}) {
    EXPECT_TRUE(r["diff"][key].is_number()) << key;
  }
  EXPECT_FALSE(r["diff"].contains("d_bias_rel_l2"));
  EXPECT_NEAR(r["ratio"]["time"].get<double>(), r["dense"]["time_s"].get<double>() / r["fused"]["time_s"].get<double>(),
              1e-9);
  EXPECT_TRUE(r["ratio"].contains("extra_peak"));
  const std::string printed = result.out.substr(result.out.find("fused / dense: time ") + 20);
  EXPECT_NEAR(std::stod(printed), 1 / r["ratio"]["time"].get<double>(), 0.0006);
  EXPECT_EQ(r["environment"]["version"], LOGITLESS_VERSION_STRING);
  ASSERT_EQ(r["gates"].size(), 4u);
  for (const json& gate : r["gates"]) {
    EXPECT_TRUE(gate["pass"].get<bool>());
    EXPECT_LE(gate["value"].get<double>(), gate["limit"].get<double>());
  }
  EXPECT_EQ(run(compare({}, {"--quiet"})).out, "");
}

TEST_F(CliTest, EveryKindOfConfigRunsAndAgrees) {
  for (const char* setting :
       {"model.dtype=bfloat16", "model.dtype=float64", "kernel.plan=one_pass",
        "model={layout: hidden_vocab, bias: true, softcap: 5}", "reduction=none", "temperature=[0.5, 2]",
        "temperature_meaning=scale_logp", "ignored_fraction=1", "class_weights=true", "loss_scale=-2", "threads=1",
        "seq_len=0", "gradients={d_hidden: false, d_weight: false}", "kernel.simd_target=plain"}) {
    const Finished result = run(compare({setting}, {"--quiet"}));
    EXPECT_EQ(result.exit_code(), 0) << setting << ": " << result.err;
  }
}

// config_fields_test tests the options of tasks.
TEST_F(CliTest, OptionsReachTheComputation) {
  const double base = report(compare({}))["dense"]["loss"];
  for (const char* setting : {"seed=1", "seq_len=60", "ignored_fraction=0.5", "model.softcap=3", "model.bias=true"}) {
    const json r = report(compare({setting}));
    EXPECT_GT(std::abs(r["dense"]["loss"].get<double>() - base), 1e-5) << setting;
  }
  const json r =
      report(compare({"kernel.plan=two_pass", "threads=1", "metrics={accuracy: true}", "gradients.d_hidden=false"}));
  EXPECT_EQ(r["fused"]["plan"], "two_pass");
  EXPECT_EQ(r["environment"]["threads"], 1);
  EXPECT_TRUE(r["details"]["fused_metrics"]["accuracy"].is_number());
  EXPECT_TRUE(r["diff"]["d_hidden_rel_l2"].is_null());
}

TEST_F(CliTest, TheFusedPathHoldsNoLogits) {
  // 600 x 20000 float32 logits are 45.8 MiB; ten of 256 x 1024 tiles would be 10 MiB.
  const json r = report(compare({"batch_size=1", "seq_len=600", "model={hidden_size: 16, vocab_size: 20000}",
                                 "kernel={plan: two_pass, vocab_tile: auto}"}));
  EXPECT_GT(r["dense"]["extra_peak_bytes"].get<int64_t>(), int64_t{45} << 20);
  EXPECT_LT(r["fused"]["extra_peak_bytes"].get<int64_t>(), int64_t{40} << 20);
}

TEST_F(CliTest, EveryTask) {
  io::for_each_task([&]<class Task> {
    if (std::is_same_v<Task, CrossEntropy>) return;
    const std::string name = Task::kName;
    const json r = report({"compare", config_named("tiny-" + name)});
    EXPECT_EQ(r["task"], name);
    EXPECT_GT(r["details"]["fused_metrics"]["tokens"].get<double>(), 50);
    EXPECT_TRUE(r["diff"]["d_weight_rel_l2"].is_number());
  });
}

TEST_F(CliTest, WhatDisagreesExitsWithOne) {
  const Words impossible = compare({"tolerances.d_hidden_rel_l2=1e-30"});
  const Finished result = run(impossible);
  EXPECT_EQ(result.exit_code(), 1);
  EXPECT_TRUE(has(result.out, "FAIL"));
  EXPECT_TRUE(has(result.out, "dense and fused DISAGREE"));
  EXPECT_FALSE(report(impossible, 1)["pass"].get<bool>());
}

TEST_F(CliTest, CompareShowsHowFarGradientsOfASampleLieApart) {
  const Words certified = compare({"backward.mode=certified", "backward.tolerance=0.5"});
  const Finished shown = run(certified);
  EXPECT_EQ(shown.exit_code(), 0) << shown.err;
  EXPECT_TRUE(has(shown.out, "d_hidden_rel_l2")) << shown.out;
  EXPECT_TRUE(has(shown.out, "of the segments")) << shown.out;
  // Gradients are checked with the config's tolerances, and the loss with the usual one.
  EXPECT_EQ(run(certified + Words{"--set", "tolerances.d_hidden_rel_l2=1e-6"}).exit_code(), 1);
}

TEST_F(CliTest, BadInputExitsWithTwoAndOneLine) {
  const std::string typo = write("typo.yaml", "model:\n  hidden_size: 4\n  vocab_sise: 8\n");
  expect_refusals({
      {{}, "A subcommand is required"},
      {{kTiny}, kTiny + " is not a command"},
      {{"no\npe"}, "no\\npe is not a command"},
      {{"compare", "--bogus"}, "--bogus"},
      {{"compare", kTiny, "--repeat", "0"}, "--repeat"},
      {{"compare", "--hidden", "a"}, "--hidden requires --lm-head"},
      {{"compare"}, "model.hidden_size is not given"},
      {{"compare", typo}, typo + ":3: model.vocab_sise is not a known key; did you mean model.vocab_size?"},
      {{"compare", path("absent.yaml")}, "absent.yaml: cannot be opened"},
      {{"compare", kTiny, "--set", "gradients.d_bias=true"}, "--set gradients.d_bias needs a bias"},
      {{"compare", kTiny, "--set", "kernel.workspace=1"}, "workspace"},
      {{"compare", kTiny, "--set", "model.hidden_size=1000000000000"}, "choose a smaller shape"},
      {{"compare", kTiny, "--set", "model={hidden_size: 1000000000000, vocab_size: 1000000000000}"},
       "more than 2^63 bytes"},
      {{"compare", kTiny, "--set", "top_k=5"}, "--set top_k has no effect on compare, which lists no largest logits"},
      {{"info", "--set", "seed=3"},
       "--set seed has no effect on info, which takes threads, kernel.simd_target, kernel.gemm_backend"},
      {{"gradcheck", kTiny, "--set", "backward.mode=certified"},
       "backward.mode = certified: gradcheck compares exact and sampled gradients"},
      // An empty name is not no name.
      {{"compare", ""}, "must not be empty"},
      {{"compare", kTiny, "--json", ""}, "must not be empty"},
      {{"score", kTiny, "-o", ""}, "must not be empty"},
      {{"gradcheck", ""}, "must not be empty"},
      {{"bench", kTiny, "--against", ""}, "must not be empty"},
  });
}

TEST_F(CliTest, AnOutputReplacesNoInputAndNoOtherOutput) {
  const std::string config = write("c.yaml", "model: {hidden_size: 8, vocab_size: 9}\nseq_len: 4\n");
  const Words tensors = write_tensors();
  std::filesystem::create_hard_link(config, path("twin.yaml"));
  std::filesystem::create_symlink("later.json", path("link"));
  const std::string states = read("states");
  expect_refusals({
      {{"compare", config, "--json", path("twin.yaml")}, "twin.yaml: is the config"},
      {{"compare", config, "-o", "-"}, "-o -: must be the name of a file"},
      {Words{"compare"} + tensors + Words{"--bias", path("states") + ":bias", "--json", path("states")},
       "states: is the file that --hidden names"},
      {{"gradcheck", kTiny, config, "--json", config}, "--json " + config + ": is the config"},
      {{"compare", config, "--json", path("later.json"), "-o", path("link")}, "is the file that -o names"},
      {{"score", config, "-o", config}, "-o " + config + ": is the config"},
      {{"bench", config, "-o", config}, "-o " + config + ": is the config"},
  });
  EXPECT_TRUE(read("c.yaml").starts_with("model"));
  EXPECT_EQ(read("states"), states);
}

TEST_F(CliTest, InfoNamesWhatRuns) {
  const Finished text = run({"info"});
  EXPECT_EQ(text.exit_code(), 0);
  EXPECT_TRUE(has(text.out, "logitless    " LOGITLESS_VERSION_STRING "\n"));
  EXPECT_TRUE(has(text.out, "\nsimd "));
  const json e = json::parse(run({"info", "--json", "--set", "kernel.simd_target=plain", "--set", "threads=1"}).out);
  EXPECT_EQ(e["simd_target"], "plain");
  EXPECT_EQ(e["threads"], 1);
  EXPECT_EQ(e["simd_targets"].back(), "plain");
  EXPECT_FALSE(e["gemm_backends"].empty());
  EXPECT_TRUE(e["warnings"].is_array());
}

}  // namespace cli_test
}  // namespace logitless::testing
