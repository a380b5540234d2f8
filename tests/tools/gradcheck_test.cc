// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck` from a user's view.
#include <iterator>
#include <limits>
#include <set>

#include "cli_fixture.h"

namespace logitless::testing {
namespace gradcheck_test {

const std::string kLogits = config_named("gradcheck/cross_entropy-logits-tiny");
const std::string kGrpoLogits = config_named("gradcheck/policy_loss-logits-tiny");

class GradcheckTest : public CliTest {
 protected:
  // Returns the checks of one run, which must have this exit status.
  json checks(const Words& configs, const Words& settings, int exit_code = 0) const {
    Words arguments = Words{"gradcheck"} + configs;
    for (const std::string& setting : settings) arguments = arguments + Words{"--set", setting};
    const json of_run = report(arguments, exit_code);
    EXPECT_EQ(of_run["pass"], exit_code == 0);
    return of_run["checks"];
  }
  json check(const std::string& config, const Words& settings, int exit_code = 0) const {
    return checks({config}, settings, exit_code)[0];
  }
};

using Names = std::set<std::string>;

Names words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}
Names keys(const json& object) {
  Names names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}
Names gate_names(const json& check) {
  Names names;
  for (const json& gate : check["gates"]) names.insert(gate["name"]);
  return names;
}

// Groups of metrics.
const std::string kLosses = "loss_ref loss_kernel abs_diff_loss time/forward_s time/ref_grad_s time/kernel_grad_s ";
const std::string kLogps = "logp_max_abs ", kPerToken = "per_token_loss_max_abs per_token_loss_rel_l2 ";
const std::string kHidden = "d_hidden_max_abs d_hidden_rel_l2 ", kWeight = "d_weight_max_abs d_weight_rel_l2 ";
const std::string kLogitGradients = "dlogits_max_abs dlogits_max_rel dlogits_rel_l2 ";

TEST_F(GradcheckTest, EveryTaskAndLevelPassesWithItsOwnMetricsAndGates) {
  const std::string losses = kLosses + kPerToken, fused = losses + kHidden + kWeight;
  const std::string of_sequences = kLosses + kLogps + kHidden + kWeight;
  const std::pair<std::string, std::string> cases[] = {
      {"tiny", fused + kLogps},
      {"tiny-policy_loss", fused + kLogps},
      {"tiny-preference_loss", of_sequences},
      {"tiny-kto_loss", of_sequences},
      {"tiny-distillation_loss", fused + kLogps},
      {"tiny-set_distillation_loss", fused},
      {"tiny-soft_cross_entropy", fused},
      {"tiny-id_logps", of_sequences},
      {"gradcheck/cross_entropy-logits-tiny", losses + kLogps + kLogitGradients},
      {"gradcheck/policy_loss-logits-tiny", losses + kLogps + kLogitGradients},
      {"gradcheck/distillation_loss-fused-tiny", fused + "d_bias_max_abs d_bias_rel_l2"},
      {"gradcheck/top_k-fused-tiny", fused + kLogps + "top_logps_max_abs top_ids_wrong"}};
  Words configs;
  for (const auto& one : cases) configs.push_back(config_named(one.first));
  const json all = checks(configs, {});
  ASSERT_EQ(all.size(), std::size(cases));
  for (size_t i = 0; i < all.size(); ++i) {
    const json& one = all[i];
    EXPECT_EQ(keys(one["metrics"]), words(cases[i].second)) << cases[i].first;
    EXPECT_TRUE(one["pass"]);
    EXPECT_GT(std::abs(one["metrics"]["loss_ref"].get<double>()), 1e-3);
    EXPECT_EQ(one["metrics"]["abs_diff_loss"].get<double>(),
              std::abs(one["metrics"]["loss_ref"].get<double>() - one["metrics"]["loss_kernel"].get<double>()));
    const bool of_logits = one["level"] == "logits";
    for (const char* gate : {"loss_atol", of_logits ? "dlogits_rel_l2" : "d_weight_rel_l2"}) {
      EXPECT_TRUE(gate_names(one).contains(gate)) << cases[i].first;
    }
  }
  EXPECT_EQ(all[4]["shape"]["teacher_hidden"], 64);
  EXPECT_TRUE(gate_names(all[11]).contains("top_ids_wrong"));
}

TEST_F(GradcheckTest, OptionsOfEveryKindPass) {
  checks({kTiny}, {"model={layout: hidden_vocab, bias: true, softcap: 20, dtype: bfloat16}", "temperature=[0.5, 2]"});
  checks({kTiny},
         {"reduction=none", "label_smoothing=0.1", "z_loss=1e-3", "class_weights=true", "model.dtype=float64"});
  checks({kTiny}, {"round_logits_to=bfloat16", "gradients={d_hidden: false, d_weight: false}"});
  checks({kTiny, kLogits}, {"seq_len=0"});
  checks({kLogits}, {"kernel.in_place=false", "gradients.dtype=float32", "shift=true"});
  checks({kGrpoLogits}, {"policy_loss.top_entropy_quantile=0.5", "policy_loss.advantages=token"});
}

TEST_F(GradcheckTest, AHeadWithALoraOrPackedPassesWithItsOwnMetrics) {
  const std::string lora = config_named("gradcheck/lora-fused-tiny"),
                    packed = config_named("gradcheck/packed-fused-tiny");
  const std::string of_lora = "d_lora_a_max_abs d_lora_a_rel_l2 d_lora_b_max_abs d_lora_b_rel_l2";
  for (const json& one : checks({lora, packed}, {})) {
    EXPECT_EQ(keys(one["metrics"]), words(kLosses + kLogps + kPerToken + kHidden + of_lora));
    EXPECT_EQ(one["shape"].contains("packing"), one["config"] == packed);
  }
  // Another scale changes the head, so the loss must differ.
  const auto loss = [&](const Words& settings) -> double { return check(packed, settings)["metrics"]["loss_ref"]; };
  EXPECT_EQ((std::set{loss({}), loss({"model.lora.scale=1"}), loss({"model.packing=none"})}).size(), 3u);
  for (const char* setting : {"model.softcap=20", "model.bias=true", "model.vocab_ids=[2048, 3, 700, 3]",
                              "model.dtype=float32", "task=preference_loss"}) {
    check(packed, {setting});
  }
}

TEST_F(GradcheckTest, SampledGradientsAreRightOnAverage) {
  const std::string sampled = config_named("gradcheck/sampled-fused-tiny");
  const json one = check(sampled, {});
  EXPECT_EQ(keys(one["metrics"]),
            words(kLosses + kLogps + kPerToken + kHidden + kWeight + "d_hidden_noise d_weight_noise kept_share"));
  EXPECT_TRUE(gate_names(one).contains("noise"));
  EXPECT_LT(one["metrics"]["kept_share"], 0.5);
  // The mean is within the gate, and a single draw is not.
  for (const json& gate : one["gates"]) {
    const std::string name = gate["name"];
    if (!name.starts_with("d_")) continue;
    const double noise = one["metrics"][name.substr(0, 8) + "_noise"];
    EXPECT_NEAR(noise, 0.05, 0.01);
    EXPECT_LT(gate["value"], noise / 5);
    EXPECT_LT(gate["limit"], noise / 3.9);
  }
  for (const Words& settings : {Words{"backward.theta=0.2", "model.lora.rank=3"},
                                {"model.bias=true", "backward.seed=77"},
                                {"model.dtype=bfloat16", "task=policy_loss"}}) {
    EXPECT_GT(check(sampled, settings)["metrics"]["d_hidden_noise"], 0.01);
  }
  EXPECT_FALSE(check(sampled, {"seq_len=0"})["metrics"].contains("d_hidden_noise"));
}

TEST_F(GradcheckTest, ATightGateFailsAlone) {
  for (const auto& [config, name] : {std::pair(kTiny, "d_weight_rel_l2"),
                                     {kTiny, "loss_atol"},
                                     {kLogits, "dlogits_max_abs"},
                                     {kLogits, "dlogits_max_rel"},
                                     {kLogits, "dlogits_rel_l2"},
                                     {kLogits, "logp_max_abs"}}) {
    const json one = check(config, {std::string("tolerances.") + name + "=1e-30"}, 1);
    for (const json& gate : one["gates"]) EXPECT_EQ(gate["pass"], gate["name"] != name) << name << ": " << gate;
  }
  const Finished table = run({"gradcheck", kGrpoLogits, "--set", "tolerances.losses_rel_l2=0"});
  EXPECT_EQ(table.exit_code(), 1);
  EXPECT_TRUE(has(table.out, "FAIL"));
  EXPECT_TRUE(has(table.out, "NOT all gates hold"));
}

TEST_F(GradcheckTest, AGateWithoutAFigureIsListedAsNotApplied) {
  EXPECT_EQ(check(kTiny, {"tolerances.dlogits_max_abs=1e-6"})["gates_not_applied"], json({"dlogits_max_abs"}));
  // Terms may cancel, so dlogits_max_rel is a gate only if it is requested.
  EXPECT_FALSE(gate_names(check(kLogits, {"label_smoothing=0.1"})).contains("dlogits_max_rel"));
  EXPECT_TRUE(gate_names(check(kLogits, {"label_smoothing=0.1", "tolerances.dlogits_max_rel=1e9"}))
                  .contains("dlogits_max_rel"));
}

TEST_F(GradcheckTest, SeveralConfigsEndWithTheWorst) {
  const std::string tight = write("tight.yaml",
                                  "task: cross_entropy\nlevel: logits\nmodel: {vocab_size: 50}\n"
                                  "seq_len: 9\ntolerances: {dlogits_max_rel: 0}\n");
  const std::string bad = write("bad.yaml",
                                "task: policy_loss\nmodel: {hidden_size: 8, vocab_size: 50}\nseq_len: 9\n"
                                "policy_loss: {loss_type: dr_grpo}\n");
  const json two = checks({tight, kLogits}, {}, 1);
  EXPECT_EQ(two[0]["config"], tight);
  EXPECT_TRUE(two[0]["pass"] == false && two[1]["pass"] == true);

  const Finished three = run({"gradcheck", tight, bad, kLogits, "--json", path("report.json")});
  EXPECT_EQ(three.exit_code(), 2);
  EXPECT_TRUE(is_one_line(three.err));
  EXPECT_TRUE(has(three.err, bad + ": max_completion_length"));
  const json all = json::parse(read("report.json"))["checks"];
  EXPECT_TRUE(all[0]["pass"] == false && all[2]["pass"] == true);
  EXPECT_TRUE(has(all[1]["error"], "max_completion_length"));
}

TEST_F(GradcheckTest, RealTensors) {
  for (const bool tall : {false, true}) {
    const json one = checks(write_tensors(tall), {})[0];
    EXPECT_EQ(one["shape"]["vocab"], 7);
    EXPECT_TRUE(has(one["config"], "--set"));
  }
  std::vector<float> logits(6 * 7);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 3 * std::sin(static_cast<float>(i));
  io::write_safetensors(path("logits"), std::vector<TensorToWrite>{{"logits", "F32", {6, 7}, logits.data()}});
  EXPECT_EQ(checks({"--logits", path("logits"), "--targets", path("states")}, {"level=logits"})[0]["level"], "logits");
  // Numbers that are not finite fail every gate that they meet.
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const json one = checks(write_tensors(true, poison), {}, 1)[0];
    ASSERT_EQ(one["gates"].size(), 5u);
    for (const json& gate : one["gates"]) EXPECT_TRUE(gate["pass"] == false && gate["value"].is_null()) << gate;
    EXPECT_TRUE(one["metrics"]["loss_kernel"].is_null());
  }
}

TEST_F(GradcheckTest, BadInputExitsWithTwoAndOneLineAndWritesNothing) {
  const std::string bad = write("bad.yaml", "model: {hidden_size: 4, vocab_sise: 8}\n");
  // In the last line the good config does not run: an error in any config is reported first.
  expect_refusals({{{"gradcheck", bad}, "model.vocab_sise is not a known key; did you mean model.vocab_size?"},
                   {{"gradcheck", kTiny, "--json", folder_.string()}, "is a directory"},
                   {{"gradcheck", kTiny, "--set", "gradients.d_bias=true"}, "d_bias"},
                   {{"gradcheck", "--hidden", "a"}, "--hidden"},
                   {{"gradcheck", kTiny, path("no-such.yaml"), "--json", path("none.json")}, "no-such.yaml"}});
  EXPECT_FALSE(std::filesystem::exists(path("none.json")));
}

}  // namespace gradcheck_test
}  // namespace logitless::testing
