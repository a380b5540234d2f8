// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck` from a user's view, and that it detects a wrong kernel.
#include <limits>
#include <set>

#include "cli_fixture.h"
#include "io/tolerances.h"
#include "logitless/logits.h"
#include "oracle/deviation.h"
#include "oracle/policy_oracle.h"
#include "oracle/preference_oracle.h"
#include "oracle/tiled_truth.h"
#include "support/calls.h"
#include "support/views.h"

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

std::set<std::string> keys(const json& object) {
  std::set<std::string> names;
  for (const auto& [name, value] : object.items()) names.insert(name);
  return names;
}

std::set<std::string> gate_names(const json& check) {
  std::set<std::string> names;
  for (const json& gate : check["gates"]) names.insert(gate["name"]);
  return names;
}

const std::set<std::string> kLosses = {"loss_ref",       "loss_kernel",     "abs_diff_loss",
                                       "time/forward_s", "time/ref_grad_s", "time/kernel_grad_s"};
const std::set<std::string> kLogps = {"logp_max_abs"};
const std::set<std::string> kPerToken = {"per_token_loss_max_abs", "per_token_loss_rel_l2"};
const std::set<std::string> kParameters = {"d_hidden_max_abs", "d_hidden_rel_l2", "d_weight_max_abs",
                                           "d_weight_rel_l2"};
const std::set<std::string> kLogitGradients = {"dlogits_max_abs", "dlogits_max_rel", "dlogits_rel_l2"};

const std::set<std::string> kTop = {"top_logps_max_abs", "top_ids_wrong"};

std::set<std::string> operator+(std::set<std::string> a, const std::set<std::string>& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST_F(GradcheckTest, EveryTaskAndLevelPassesWithItsOwnMetricsAndGates) {
  const std::set<std::string> losses = kLosses + kPerToken, fused = losses + kParameters;
  const std::set<std::string> of_sequences = kLosses + kLogps + kParameters;
  const std::pair<std::string, std::set<std::string>> cases[] = {
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
      {"gradcheck/distillation_loss-fused-tiny", fused + std::set<std::string>{"d_bias_max_abs", "d_bias_rel_l2"}},
      {"gradcheck/top_k-fused-tiny", fused + kLogps + kTop}};
  Words configs;
  for (const auto& one : cases) configs.push_back(config_named(one.first));
  const json all = checks(configs, {});
  ASSERT_EQ(all.size(), std::size(cases));
  for (size_t i = 0; i < all.size(); ++i) {
    const json& one = all[i];
    EXPECT_EQ(keys(one["metrics"]), cases[i].second) << cases[i].first;
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

const std::set<std::string> kLora = {"d_lora_a_max_abs", "d_lora_a_rel_l2", "d_lora_b_max_abs", "d_lora_b_rel_l2"};
const std::set<std::string> kNoise = {"d_hidden_noise", "d_weight_noise", "kept_share"};

TEST_F(GradcheckTest, AHeadWithALoraOrPackedPassesWithItsOwnMetrics) {
  const std::string lora = config_named("gradcheck/lora-fused-tiny"),
                    packed = config_named("gradcheck/packed-fused-tiny");
  const std::set<std::string> of_states = {"d_hidden_max_abs", "d_hidden_rel_l2"};
  for (const json& one : checks({lora, packed}, {})) {
    EXPECT_EQ(keys(one["metrics"]), kLosses + kLogps + kPerToken + of_states + kLora);
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
  EXPECT_EQ(keys(one["metrics"]), kLosses + kLogps + kPerToken + kParameters + kNoise);
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
  // Because of cancelling terms it is not a gate, unless it is requested.
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

// One element of a gradient has a relative error of a thousandth, its own or that of one vocabulary entry in
// the sum over a row.
TEST(Gradcheck, AWrongGradientIsCaught) {
  constexpr int64_t kTokens = 40, kVocab = 300;
  std::vector<float> values(kTokens * kVocab), gradient(values.size());
  std::vector<int64_t> targets(kTokens);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 4 * std::sin(static_cast<float>(i * i % 1009));
  for (int64_t i = 0; i < kTokens; ++i) targets[i] = i * 37 % kVocab;
  const FinishedLogits logits(values.data(), 1, kTokens, kVocab);
  const Targets ids(targets.data(), kTokens);
  cross_entropy(Context(), logits, ids, {}, LogitsGradient(gradient.data(), 1, kTokens, kVocab));

  const std::vector<int64_t> offsets = {0, kTokens};
  const oracle::LogitsTruth reference(logits, oracle::read_tokens(offsets, kVocab, ids, CrossEntropy()), 20'000);
  const oracle::TokenStatistics stats = reference.compute_statistics();
  const oracle::LossTruth truth = oracle::cross_entropy_truth(reference.tokens(), stats, {});
  const auto gates = [&] {
    oracle::Deviation deviation;
    reference.compute_logit_gradients(stats, truth.grads, [&](int64_t first, const oracle::MatrixXd& tile) {
      deviation.add(tile, {gradient.data() + first, DType::kFloat32, kVocab, 1});
    });
    const io::ExactTolerances limits = io::tolerances_of_exact(
        DType::kFloat32, DType::kFloat32, {deviation.largest(), deviation.norm(), deviation.count()});
    return std::array{io::make_gate("max_abs", deviation.max_abs(), limits.max_abs).pass,
                      io::make_gate("max_rel", deviation.max_rel(), limits.max_rel).pass,
                      io::make_gate("rel_l2", deviation.rel_l2(), limits.rel_l2).pass};
  };
  EXPECT_EQ(gates(), (std::array{true, true, true}));
  const size_t label = static_cast<size_t>(7 * kVocab + targets[7]), other = label + 1;
  for (const size_t at : {label, other}) {
    const float right = gradient[at];
    gradient[at] = right * 1.001f;
    EXPECT_FALSE(gates()[1]);
    if (at == label) {
      EXPECT_EQ(gates(), (std::array{false, false, false}));
    }
    gradient[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(gates(), (std::array{false, false, false}));
    gradient[at] = right;
  }
}

}  // namespace gradcheck_test
}  // namespace logitless::testing
