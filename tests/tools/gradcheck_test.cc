// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// `logitless gradcheck` as a user meets it, and that what it measures finds a wrong kernel.
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
namespace {

using Words = std::vector<std::string>;

const std::string kLogits = config_named("gradcheck/cross_entropy-logits-tiny");
const std::string kGrpoLogits = config_named("gradcheck/policy_loss-logits-tiny");

class GradcheckTest : public CliTest {
 protected:
  Finished gradcheck(Words configs, const Words& settings, const Words& rest = {}) const {
    Words arguments = {"gradcheck"};
    arguments.insert(arguments.end(), configs.begin(), configs.end());
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return run(arguments);
  }
  // The checks of one run with the exit status that it has to have.
  json checks(const Words& configs, const Words& settings, int exit_code = 0, const Words& rest = {}) const {
    Words with_json = rest;
    with_json.insert(with_json.end(), {"--json", "-"});
    const Finished result = gradcheck(configs, settings, with_json);
    EXPECT_EQ(result.exit_code(), exit_code) << result.err << result.out;
    const json report = json::parse(result.out, nullptr, false);
    EXPECT_EQ(report["pass"], exit_code == 0);
    return report["checks"];
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
  const json all = checks({kTiny, config_named("tiny-policy_loss"), config_named("tiny-preference_loss"),
                           config_named("tiny-kto_loss"), kLogits, kGrpoLogits},
                          {});
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(keys(all[0]["metrics"]), kLosses + kLogps + kPerToken + kParameters);
  EXPECT_EQ(keys(all[1]["metrics"]), kLosses + kLogps + kPerToken + kParameters);
  EXPECT_EQ(keys(all[2]["metrics"]), kLosses + kLogps + kParameters);
  EXPECT_EQ(keys(all[3]["metrics"]), kLosses + kLogps + kParameters);
  EXPECT_EQ(keys(all[4]["metrics"]), kLosses + kLogps + kPerToken + kLogitGradients);
  EXPECT_EQ(keys(all[5]["metrics"]), kLosses + kLogps + kPerToken + kLogitGradients);
  EXPECT_EQ(gate_names(all[0]), (std::set<std::string>{"loss_atol", "logp_max_abs", "losses_rel_l2", "d_hidden_rel_l2",
                                                       "d_weight_rel_l2"}));
  EXPECT_EQ(gate_names(all[4]), (std::set<std::string>{"loss_atol", "logp_max_abs", "losses_rel_l2", "dlogits_max_abs",
                                                       "dlogits_max_rel", "dlogits_rel_l2"}));
  for (const json& one : all) {
    EXPECT_TRUE(one["pass"]);
    EXPECT_GT(std::abs(one["metrics"]["loss_ref"].get<double>()), 1e-3);
    EXPECT_EQ(one["metrics"]["abs_diff_loss"].get<double>(),
              std::abs(one["metrics"]["loss_ref"].get<double>() - one["metrics"]["loss_kernel"].get<double>()));
  }
  EXPECT_EQ(all[4]["task"], "cross_entropy");
  EXPECT_EQ(all[4]["level"], "logits");
}

TEST_F(GradcheckTest, AConfigForBothLevelsPassesAtLogits) {
  for (const char* config : {"tiny", "tiny-policy_loss"}) {
    const json all = checks({config_named(config)}, {"level=logits", "model.dtype=float16"});
    EXPECT_EQ(all[0]["level"], "logits");
  }
}

TEST_F(GradcheckTest, EveryTaskOfDistributionsPassesWithItsOwnMetricsAndGates) {
  const json all =
      checks({config_named("tiny-distillation_loss"), config_named("tiny-set_distillation_loss"),
              config_named("tiny-soft_cross_entropy"), config_named("tiny-id_logps"),
              config_named("gradcheck/distillation_loss-fused-tiny"), config_named("gradcheck/top_k-fused-tiny")},
             {});
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(keys(all[0]["metrics"]), kLosses + kLogps + kPerToken + kParameters);
  EXPECT_EQ(keys(all[1]["metrics"]), kLosses + kPerToken + kParameters);
  EXPECT_EQ(keys(all[2]["metrics"]), kLosses + kPerToken + kParameters);
  EXPECT_EQ(keys(all[3]["metrics"]), kLosses + kLogps + kParameters);
  EXPECT_EQ(keys(all[5]["metrics"]), kLosses + kLogps + kPerToken + kParameters + kTop);
  EXPECT_EQ(gate_names(all[5]), (std::set<std::string>{"loss_atol", "logp_max_abs", "losses_rel_l2", "d_hidden_rel_l2",
                                                       "d_weight_rel_l2"}) +
                                    kTop);
  EXPECT_EQ(all[0]["shape"]["teacher_hidden"], 64);
  for (const json& one : all) {
    EXPECT_TRUE(one["pass"]);
    EXPECT_GT(std::abs(one["metrics"]["loss_ref"].get<double>()), 1e-3);
  }
}

TEST_F(GradcheckTest, EveryOptionOfDistributionsPasses) {
  const std::string distillation = config_named("tiny-distillation_loss"),
                    sets = config_named("tiny-set_distillation_loss");
  for (const Divergence kind : all_of<Divergence>()) {
    const std::string setting = std::string("distillation_loss.loss_type=") + name_of(kind);
    checks({distillation}, {setting, "distillation_loss.mean_over=sequence_means", "kernel.plan=two_pass"});
    checks({distillation}, {setting, "model.dtype=bfloat16", "teacher.dtype=float32", "model.softcap=20"});
    if (kind == Divergence::kAcceptance || kind == Divergence::kLkHybrid) continue;
    for (const OutsideSet outside : all_of<OutsideSet>()) {
      const std::string hard = outside == OutsideSet::kRenormalised ? "0" : "0.5";
      checks({sets}, {std::string("set_distillation_loss.loss_type=") + name_of(kind),
                      std::string("set_distillation_loss.outside=") + name_of(outside),
                      "set_distillation_loss.hard_weight=" + hard, "model={bias: true, softcap: 20}"});
    }
  }
  checks({config_named("tiny-id_logps")}, {"id_logps.normalise_over=set", "temperature=[0.5, 2]"});
  checks({config_named("tiny-soft_cross_entropy")},
         {"soft_cross_entropy.subtract_entropy=true", "model.dtype=float64"});
  checks({}, {"task=soft_cross_entropy", "model={hidden_size: 16, vocab_size: 300}", "seq_len=40", "sets.dense=true"});
}

TEST_F(GradcheckTest, EveryTypeLayoutAndOptionPasses) {
  const Words fused[] = {{"model.dtype=bfloat16"},
                         {"model.dtype=float16"},
                         {"model.dtype=float64"},
                         {"model.dtype=bfloat16", "gradients.dtype=float32"},
                         {"model={layout: hidden_vocab, bias: true, softcap: 20}"},
                         {"reduction=none", "temperature=[0.5, 2]"},
                         {"reduction=sum", "label_smoothing=0.1", "z_loss=1e-3", "class_weights=true"},
                         {"round_logits_to=bfloat16"},
                         {"gradients={d_hidden: false, d_weight: false}"},
                         {"ignored_fraction=1"},
                         {"seq_len=0"}};
  for (const Words& settings : fused) checks({kTiny}, settings);
  const Words logits[] = {{"model.dtype=float16"},
                          {"model.dtype=float64"},
                          {"model.dtype=float32", "kernel.in_place=false"},
                          {"kernel.in_place=false", "gradients.dtype=float32"},
                          {"label_smoothing=0.1", "shift=true"},
                          {"temperature=0.5", "loss_scale=-100", "round_logits_to=float16"},
                          {"seq_len=0"}};
  for (const Words& settings : logits) checks({kLogits}, settings);
  for (const char* variant : {"bnpo", "dapo", "cispo", "sapo", "luspo", "vespo", "reinforce", "rloo", "ppo",
                              "importance_sampling", "dppo", "gmpo", "dro", "topr", "clip_cov", "kl_cov"}) {
    const std::string setting = std::string("policy_loss.loss_type=") + variant;
    checks({config_named("tiny-policy_loss"), kGrpoLogits}, {setting});
  }
  for (const char* setting :
       {"kernel.in_place=true", "policy_loss.importance_sampling_level=sequence", "policy_loss.entropy_bonus=0.01",
        "policy_loss.top_entropy_quantile=0.5", "policy_loss.advantages=token"}) {
    checks({kGrpoLogits}, {setting});
  }
  for (const char* losses : {"[hinge, apo_zero]", "[orpo, sft]", "[aot, sigmoid]", "[discopop, ipo]"}) {
    checks({config_named("tiny-preference_loss")},
           {std::string("preference_loss={loss_type: ") + losses + ", nll_weight: 0.5}"});
  }
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
  // Another scale is another head, whatever the library does with it.
  const auto loss = [&](const Words& settings) { return check(packed, settings)["metrics"]["loss_ref"].get<double>(); };
  const std::set<double> losses = {loss({}), loss({"model.lora.scale=1"}), loss({"model.packing=none"})};
  EXPECT_EQ(losses.size(), 3u);
  for (const char* setting : {"model.softcap=20", "model.bias=true", "model.vocab_ids=[2048, 3, 700, 3]",
                              "model.dtype=float32", "model.lora.rank=0", "task=preference_loss"}) {
    check(packed, {setting});
  }
}

TEST_F(GradcheckTest, APackedHeadIsRefusedWhereThereIsNone) {
  const auto refused = [&](const Words& settings, const std::string& message, const Words& rest = {}) {
    const Finished result = gradcheck({config_named("gradcheck/packed-fused-tiny")}, settings, rest);
    EXPECT_EQ(result.exit_code(), 2);
    EXPECT_TRUE(is_one_line(result.err) && has(result.err, message)) << result.err;
  };
  refused({"gradients.d_weight=true"}, "gradients.d_weight is true, but a packed head is frozen");
  refused({"model.layout=hidden_vocab"}, "model.packing needs model.layout vocab_hidden: packed heads are [V, H]");
  refused({"level=logits"}, "model.packing needs level fused: logits are final");
  refused({"model.packing=q8_0"}, "model.packing must be int8, not q8_0");
  refused({"parallel.vocab=2"}, "model.packing packs a head, which ranks would have to share");
  refused({}, "model.packing packs a seeded head, but --lm-head was given", write_tensors(true));
}

TEST_F(GradcheckTest, SampledGradientsAreRightOnAverage) {
  const std::string sampled = config_named("gradcheck/sampled-fused-tiny");
  const json one = check(sampled, {});
  EXPECT_EQ(keys(one["metrics"]), kLosses + kLogps + kPerToken + kParameters + kNoise);
  EXPECT_TRUE(gate_names(one).contains("noise"));
  EXPECT_LT(one["metrics"]["kept_share"], 0.5);
  // A draw is further off than the mean, and the gate is nearer than a draw.
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

TEST_F(GradcheckTest, WithoutNoiseSampledGradientsAreTheExactOnes) {
  const std::string sampled = config_named("gradcheck/sampled-fused-tiny");
  const json exact = check(sampled, {"backward.mode=exact"})["metrics"],
             same = check(sampled, {"backward.noise=0"})["metrics"];
  for (const std::string& name : kParameters) EXPECT_EQ(same[name], exact[name]) << name;
  EXPECT_EQ(same["kept_share"], 1);
  EXPECT_EQ(same["d_hidden_noise"], 0);
}

TEST_F(GradcheckTest, ATightGateFailsAlone) {
  for (const auto& [config, name] : {std::pair(kTiny, "d_weight_rel_l2"),
                                     {kTiny, "d_hidden_rel_l2"},
                                     {kTiny, "loss_atol"},
                                     {kLogits, "dlogits_max_abs"},
                                     {kLogits, "dlogits_max_rel"},
                                     {kLogits, "dlogits_rel_l2"},
                                     {kLogits, "logp_max_abs"}}) {
    const json one = check(config, {std::string("tolerances.") + name + "=1e-30"}, 1);
    for (const json& gate : one["gates"]) EXPECT_EQ(gate["pass"], gate["name"] != name) << name << ": " << gate;
  }
  const Finished table = gradcheck({kGrpoLogits}, {"tolerances.losses_rel_l2=0"});
  EXPECT_EQ(table.exit_code(), 1);
  EXPECT_TRUE(has(table.out, "FAIL"));
  EXPECT_TRUE(has(table.out, "NOT all gates hold"));
}

TEST_F(GradcheckTest, AGateWithoutAFigureIsListedAsNotApplied) {
  EXPECT_EQ(check(kTiny, {"tolerances.dlogits_max_abs=1e-6"})["gates_not_applied"], json({"dlogits_max_abs"}));
  EXPECT_EQ(check(kLogits, {})["gates_not_applied"], json::array());
  // Terms that cancel make it no gate, unless it is asked for.
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
  EXPECT_FALSE(two[0]["pass"]);
  EXPECT_TRUE(two[1]["pass"]);

  const Finished three = gradcheck({tight, bad, kLogits}, {}, {"--json", path("report.json")});
  EXPECT_EQ(three.exit_code(), 2);
  EXPECT_TRUE(is_one_line(three.err));
  EXPECT_TRUE(has(three.err, bad + ": max_completion_length"));
  const json report = json::parse(read("report.json"));
  EXPECT_FALSE(report["checks"][0]["pass"]);
  EXPECT_TRUE(has(report["checks"][1]["error"], "max_completion_length"));
  EXPECT_TRUE(report["checks"][2]["pass"]);
}

TEST_F(GradcheckTest, TheTableHasALineAMetricAndAGate) {
  const Finished result = gradcheck({kLogits}, {});
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.err, "");
  for (const std::string& name : kLosses + kLogps + kPerToken + kLogitGradients) {
    EXPECT_TRUE(has(result.out, "\n" + name + " "));
  }
  EXPECT_TRUE(has(result.out, "logits cross_entropy, tiny: 134 tokens, vocab 2049, bfloat16, gradients in bfloat16\n"));
  EXPECT_TRUE(has(result.out, "all gates hold\n"));
  EXPECT_EQ(gradcheck({kLogits}, {}, {"--quiet"}).out, "");
}

TEST_F(GradcheckTest, TwoRunsFindTheSameNumbers) {
  const Words configs = {kTiny, config_named("tiny-preference_loss"), kLogits, kGrpoLogits};
  const auto numbers = [&] {
    json all = checks(configs, {});
    for (json& one : all) {
      for (const char* time : {"time/forward_s", "time/ref_grad_s", "time/kernel_grad_s"}) one["metrics"].erase(time);
    }
    return all.dump();
  };
  EXPECT_EQ(numbers(), numbers());
}

TEST_F(GradcheckTest, RealTensors) {
  for (const bool tall : {false, true}) {
    const Words tensors = write_tensors(tall);
    const json one = checks({}, {}, 0, tensors)[0];
    EXPECT_EQ(one["shape"]["vocab"], 7);
    EXPECT_TRUE(has(one["config"], "--set"));
  }
  std::vector<float> logits(6 * 7);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 3 * std::sin(static_cast<float>(i));
  const std::vector<TensorToWrite> file = {{"logits", "F32", {6, 7}, logits.data()}};
  io::write_safetensors(path("logits"), file);
  EXPECT_EQ(checks({}, {"level=logits"}, 0, {"--logits", path("logits"), "--targets", path("states")})[0]["level"],
            "logits");
}

TEST_F(GradcheckTest, NonFiniteInputsFailEveryGateTheyMeet) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const json one = checks({}, {}, 1, write_tensors(true, poison))[0];
    ASSERT_EQ(one["gates"].size(), 5u);
    for (const json& gate : one["gates"]) {
      EXPECT_FALSE(gate["pass"]) << gate;
      EXPECT_TRUE(gate["value"].is_null()) << gate;
    }
    EXPECT_TRUE(one["metrics"]["loss_kernel"].is_null());
  }
}

TEST_F(GradcheckTest, BadInputExitsWithTwoAndOneLineAndWritesNothing) {
  const std::string model = "model: {hidden_size: 4, vocab_size: 8}\n";
  const std::pair<std::string, std::string> files[] = {
      {"model: {hidden_size: 4, vocab_sise: 8}\n",
       "model.vocab_sise is not a known key; did you mean model.vocab_size?"},
      {model + "seq_len: many\n", "seq_len must be an integer"},
      {model + "batch_size: -1\n", "batch_size must be an integer from 1"},
      {"model: {hidden_size: 4, vocab_size: -8}\n", "model.vocab_size must be an integer from 1"},
      {model + "task: policy_loss\npolicy_loss: {loss_type: gspo}\n", "policy_loss.loss_type must be"},
      {model + "task: preference_loss\npreference_loss: {loss_type: [dpo]}\n", "preference_loss.loss_type"},
      {model + "task: kto_loss\nlevel: logits\n", "level is logits, but task kto_loss has level fused alone"},
      {model + "tolerances: {loss_atol: small}\n", "tolerances.loss_atol must be a finite number"},
      {"", "is empty"},
      {std::string("\x7f"
                   "ELF\x02\x01\0\0\0",
                   9),
       "is not a text file"},
      {"task: cross_entropy\nlevel: logits\nseq_len: 3\n", "model.vocab_size is not given"}};
  for (const auto& [text, message] : files) {
    const std::string config = write("bad.yaml", text);
    const Finished result = gradcheck({config}, {}, {"--json", path("none.json")});
    EXPECT_EQ(result.exit_code(), 2) << message;
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
    EXPECT_TRUE(has(result.err, message));
  }
  // In the last line the good config does not run: a mistake in any config shows at once.
  const Words lines[] = {
      {"gradcheck", path("no-such.yaml")},    {"gradcheck", kTiny, "--json", folder_.string()},
      {"gradcheck", kTiny, "--set", "sed=1"}, {"gradcheck", kTiny, "--set", "gradients.d_bias=true"},
      {"gradcheck", "--hidden", "a"},         {"gradcheck", kTiny, path("no-such.yaml"), "--json", path("none.json")}};
  for (const Words& line : lines) {
    const Finished result = run(line);
    EXPECT_EQ(result.exit_code(), 2) << line.back();
    EXPECT_EQ(result.out, "") << line.back();
    EXPECT_TRUE(is_one_line(result.err)) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(path("none.json")));
}

TEST_F(GradcheckTest, ChosenEntriesOfHeads) {
  for (const char* layout : {"model.layout=vocab_hidden", "model.layout=hidden_vocab"}) {
    const json one =
        check(kTiny, {layout, "model.vocab_ids=[2048, 3, 700, 3]", "model.bias=true", "label_smoothing=0.1"});
    EXPECT_EQ(one["shape"]["vocab"], 4);
    EXPECT_EQ(gate_names(one).count("d_weight_rel_l2"), 1u);
    EXPECT_EQ(gate_names(one).count("d_bias_rel_l2"), 1u);
  }
  EXPECT_EQ(check(config_named("tiny-distillation_loss"), {"model.vocab_ids=[20, 3, 7]"})["shape"]["vocab"], 3);
  const Finished refused = gradcheck({kLogits}, {"model.vocab_ids=[1]"});
  EXPECT_EQ(refused.exit_code(), 2);
  EXPECT_TRUE(has(refused.err, "model.vocab_ids chooses entries of a head, and level logits has none")) << refused.err;
}

// One element of a gradient that is off by a thousandth, its own or one vocabulary entry's in the sum over a
// row.
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

// What the oracle's chain rule of a LoRA rests on: the losses alone.
TEST(Gradcheck, GradientsOfALoraAreTheDifferencesOfLosses) {
  constexpr int64_t kTokens = 6, kHidden = 5, kVocab = 70, kRank = 3;
  std::vector<double> hidden(kTokens * kHidden), weight(kVocab * kHidden), a(kRank * kHidden), b(kVocab * kRank);
  double at = 0;
  for (std::vector<double>* values : {&hidden, &weight, &a, &b}) {
    for (double& value : *values) {
      at += 1;
      value = std::sin(at * at);
    }
  }
  const std::vector<int64_t> targets = {3, 69, 0, 17, -100, 41};
  LmHead head(ConstMatrix(weight.data(), DType::kFloat64, kVocab, kHidden));
  head.softcap = 9;
  head.lora = {ConstMatrix(a.data(), DType::kFloat64, kRank, kHidden),
               ConstMatrix(b.data(), DType::kFloat64, kVocab, kRank), 1.5};
  const auto loss = [&](const Gradients& out = {}) {
    const HiddenStates states(ConstMatrix(hidden.data(), DType::kFloat64, kTokens, kHidden));
    return cross_entropy(Context(), states, head, Targets(targets.data(), kTokens), {}, out).loss;
  };
  std::vector<double> d_a(a.size()), d_b(b.size());
  Gradients out;
  out.d_lora_a = Matrix(d_a.data(), DType::kFloat64, kRank, kHidden);
  out.d_lora_b = Matrix(d_b.data(), DType::kFloat64, kVocab, kRank);
  loss(out);
  constexpr double kStep = 1e-5;  // errs by its square, 1e-10, and by 1e-15 / step of the losses' rounding
  for (const auto& [values, gradient] : {std::pair(&a, &d_a), {&b, &d_b}}) {
    double largest = 0;
    for (size_t i = 0; i < values->size(); ++i) {
      double& value = (*values)[i];
      const double before = value;
      value = before + kStep;
      const double above = loss();
      value = before - kStep;
      const double below = loss();
      value = before;
      EXPECT_NEAR((*gradient)[i], (above - below) / (2 * kStep), 2e-9);
      largest = std::max(largest, std::abs((*gradient)[i]));
    }
    EXPECT_GT(largest, 0.01);
  }
}

}  // namespace
}  // namespace logitless::testing
