// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Configs: their meaning, and the exact message for a wrong one.
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <vector>

#include "folder_test.h"
#include "io/config.h"
#include "support/calls.h"

namespace logitless::io {
namespace config_test {

const std::filesystem::path kConfigs = std::filesystem::path(SOURCE_FOLDER) / "configs";

class ConfigTest : public testing::FolderTest {
 protected:
  Config load(const std::string& text, const std::vector<std::string>& assignments = {}) const {
    return load_config(write("c.yaml", text), assignments);
  }
  // Returns the message without the folder: "c.yaml:3: ...".
  std::string error(const std::string& text, const std::vector<std::string>& assignments = {}) const {
    try {
      load(text, assignments);
    } catch (const Error& e) {
      return without_folder(e.what());
    }
    return "no error";
  }
  static std::string set_error(const std::string& assignment) {
    try {
      load_config(std::nullopt, std::vector<std::string>{assignment});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  static Config set(const std::vector<std::string>& assignments) { return load_config(std::nullopt, assignments); }
};

// config_fields_test tests the options of tasks.
TEST_F(ConfigTest, EveryOtherKeyReachesItsPlace) {
  const Config c = load(R"(batch_size: 3
model: {name: 'a: b', hidden_size: 1536, vocab_size: 151936, layout: vocab_hidden, dtype: bfloat16,
        softcap: 30, bias: true, lora: {rank: 16, scale: -0.5, dtype: float16}}
gradients: {d_hidden: false, d_weight: false, d_bias: false, d_lora_a: false, d_lora_b: false, dtype: float32}
kernel: {block_size: 2048, time_block: 256, plan: expected_row, simd_target: plain}
tolerances: {d_hidden_rel_l2: 2.0e-5, d_lora_a_rel_l2: 4}
temperature: [0.5, 2]
)",
                        {"seed=7", "ignored_fraction=0.5", "threads=3", "class_weights=true", "shift=true"});
  EXPECT_EQ(c.batch_size, 3);
  EXPECT_EQ(c.model.name, "a: b");
  EXPECT_EQ(c.model.hidden_size, 1536);
  EXPECT_EQ(c.model.vocab_size, 151936);
  EXPECT_EQ(c.model.dtype, DType::kBFloat16);
  EXPECT_EQ(c.model.softcap, 30);
  EXPECT_TRUE(c.model.bias && c.class_weights);
  EXPECT_EQ(c.model.lora.rank, 16);
  EXPECT_EQ(c.model.lora.scale, -0.5);
  EXPECT_EQ(c.model.lora.dtype, DType::kFloat16);
  EXPECT_FALSE(c.gradients.d_hidden || c.gradients.d_weight || c.gradients.d_bias);
  EXPECT_FALSE(c.gradients.d_lora_a || c.gradients.d_lora_b);
  EXPECT_EQ(c.gradient_dtype(DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(c.kernel.vocab_tile, 2048) << "its former name is block_size";
  EXPECT_EQ(c.kernel.row_tile, 256) << "its former name is time_block";
  EXPECT_EQ(c.kernel.plan, PlanKind::kExpectedRow);
  EXPECT_EQ(c.kernel.simd_target, "plain");
  EXPECT_EQ(c.kernel.threads, 3);
  EXPECT_EQ(c.tolerance("d_hidden_rel_l2", 1), 2e-5);
  EXPECT_EQ(c.tolerance("d_lora_a_rel_l2", 1), 4);
  EXPECT_EQ(c.tolerance("losses_rel_l2", 1), 1) << "it is left out";
  EXPECT_TRUE(c.temperature.per_token());
  EXPECT_EQ(c.temperature.low, 0.5);
  EXPECT_EQ(c.temperature.high, 2);
  EXPECT_EQ(c.seed, 7u);
  EXPECT_EQ(c.ignored_fraction, 0.5);
  EXPECT_EQ(c.of<CrossEntropy>().token.shift, 1);
  EXPECT_TRUE(c.is_set("kernel.row_tile"));
  EXPECT_FALSE(c.is_set("reduction"));
  EXPECT_EQ(c.place_of("model.dtype"), path("c.yaml") + ":2: model.dtype");
  EXPECT_EQ(load_config(std::nullopt, c.settings).settings, c.settings) << "the settings are the whole config";
}

TEST_F(ConfigTest, LeftOutKeysHaveTheirDefaults) {
  const Config c = set({});
  EXPECT_EQ(c.batch_size, 1);
  EXPECT_EQ(c.of<CrossEntropy>().token.ignore_index, -100);
  EXPECT_EQ(c.temperature.low, 1.0);
  EXPECT_FALSE(c.temperature.per_token());
  EXPECT_EQ(c.model.layout, HeadLayout::kVocabHidden);
  EXPECT_TRUE(c.gradients.d_hidden && c.gradients.d_weight);
  EXPECT_EQ(c.gradient_dtype(DType::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(c.kernel.workspace_bytes, ContextOptions().workspace_bytes);
  const Config autos = set({"kernel={vocab_tile: auto, row_tile: auto, plan: auto, workspace: auto}", "threads=auto"});
  EXPECT_EQ(autos.kernel.vocab_tile, 0);
  EXPECT_EQ(autos.kernel.threads, 0);
}

TEST_F(ConfigTest, SizesKnowTheirUnits) {
  EXPECT_EQ(set({"kernel.workspace=1000"}).kernel.workspace_bytes, 1000u);
  EXPECT_EQ(set({"kernel.workspace=1.5GiB"}).kernel.workspace_bytes, size_t{3} << 29);
  EXPECT_EQ(set({"kernel.workspace=2 KiB"}).kernel.workspace_bytes, 2048u);
  EXPECT_EQ(set({"kernel.workspace=3MB"}).kernel.workspace_bytes, 3000000u);
  for (const char* bad : {"0", "-1", "256Mib", "MiB", "1e30GiB", "nan", "[1]", "'256MiB'"}) {
    EXPECT_TRUE(
        set_error(std::string("kernel.workspace=") + bad)
            .starts_with("--set kernel.workspace must be auto or a size above 0 such as 256MiB or 1.5GiB, not "))
        << bad;
  }
}

TEST_F(ConfigTest, ErrorsNameFileLineKeyAndRule) {
  const std::pair<const char*, const char*> cases[] = {
      {"seed: 1\nmodel:\n  hiden_size: 3\n", "3: model.hiden_size is not a known key; did you mean model.hidden_size?"},
      {"\n\nhidden_size: 3\n", "3: hidden_size is not a known key; did you mean model.hidden_size?"},
      {"completely_different: 1\n", "1: completely_different is not a known key"},
      {"model: {dtype: float8}", "1: model.dtype must be float32, bfloat16, float64 or float16, not float8"},
      {"seed: 1\nseq_len: many\n", "2: seq_len must be an integer from 0 to 1099511627776, not many"},
      {"batch_size: 1.5", "1: batch_size must be an integer from 1 to 1099511627776, not 1.5"},
      {"seed: '1'", "1: seed must be an integer of at least 0, not the text \"1\""},
      {"seed: 99999999999999999999", "1: seed must be an integer of at least 0, not 99999999999999999999"},
      {"class_weights: yes", "1: class_weights must be true or false, not yes"},
      {"seed: 0\nmodel:\nseq_len: 3", "2: model must be a section of keys, not nothing"},
      {"seed: {a: 1}", "1: seed must be an integer of at least 0, not a section of keys"},
      {"model: {name: [1]}", "1: model.name must be text, not a list"},
      {"seed: 1\nseed: 2", "2: seed is set a second time here"},
      {"task: ppo",
       "1: task must be cross_entropy, policy_loss, preference_loss, kto_loss, soft_cross_entropy, "
       "distillation_loss, set_distillation_loss or id_logps, not ppo"},
      {"temperature: 0", "1: temperature must be a finite number above 0, or a list [low, high] of two, not 0"},
      {"temperature: [2, 1]", "1: temperature must be a list [low, high] with low below high, not a list"},
      {"label_smoothing: 1.1", "1: label_smoothing must be a number from 0 to 1, not 1.1"},
      {"num_items_in_batch: 0", "1: num_items_in_batch must be a finite number above 0, or none, not 0"},
      {"reduction: sum\nnum_items_in_batch: 3\n", "2: num_items_in_batch needs reduction mean"},
      {"kernel:\n  row_tile: 1\n  time_block: 2\n", "3: kernel.time_block is set a second time here"},
      {"task: policy_loss\npolicy_loss: {log_ratio_clamp: 301}",
       "2: policy_loss.log_ratio_clamp must be a number above 0 and up to 300, or none, not 301"},
      {"kernel: {plan: dense}", "1: kernel.plan must be auto, one_pass, two_pass or expected_row, not dense"}};
  for (const auto& [text, message] : cases) EXPECT_EQ(error(text), std::string("c.yaml:") + message);
  for (const char* bad : {"nan", ".nan", "-.inf", "1e999", "0x10", "1,5"}) {
    EXPECT_EQ(error(std::string("loss_scale: ") + bad),
              std::string("c.yaml:1: loss_scale must be a finite number, not ") + bad);
  }
}

TEST_F(ConfigTest, TasksAndLevelsGiveSomeKeysNothingToActOn) {
  const std::pair<const char*, const char*> cases[] = {
      {"policy_loss: {beta: 1}",
       "1: policy_loss.beta has no meaning for task cross_entropy: it belongs to policy_loss"},
      {"task: policy_loss\nz_loss: 1\n", "2: z_loss has no meaning for task policy_loss: it belongs to cross_entropy"},
      {"task: policy_loss\nshift: true\n",
       "2: shift has no meaning for task policy_loss: a mask says which tokens count"},
      {"task: preference_loss\nbatch_size: 3\n",
       "2: batch_size is 3, but task preference_loss needs an even number of sequences: the chosen ones, then the "
       "rejected ones"},
      {"task: preference_loss\npreference_loss: {loss_type: [ipo, sft], loss_weights: 2}\nbatch_size: 2\n",
       "2: preference_loss.loss_weights has 1 entries, but preference_loss.loss_type has 2"},
      {"task: policy_loss\npolicy_loss: {on_policy: true, log_ratio_deviation: 1}\n",
       "2: policy_loss.log_ratio_deviation needs policy_loss.on_policy false"},
      {"task: kto_loss\ntolerances: {losses_rel_l2: 1}",
       "2: tolerances.losses_rel_l2 has no meaning for task kto_loss: it has no per-token losses"},
      {"task: distillation_loss\nsets: {ids: 4}\n",
       "2: sets.ids has no meaning for task distillation_loss: it belongs to soft_cross_entropy, "
       "set_distillation_loss or id_logps"},
      {"task: soft_cross_entropy\nsets: {ids: 4, dense: true}\n", "2: sets.ids needs sets.dense false"},
      {"task: id_logps\nloss_scale: 2\n", "2: loss_scale has no meaning for task id_logps: it has no loss of its own"},
      {"task: distillation_loss\ntop_k: 2\n",
       "2: top_k has no meaning for task distillation_loss: its forward call only computes its loss"},
      {"kernel: {in_place: true}",
       "1: kernel.in_place needs level logits: at level fused there are no logits to replace"},
      {"level: logits\ngradients: {d_hidden: false}\n",
       "2: gradients.d_hidden needs level fused: at level logits there is no head"},
      {"level: logits\nmodel: {softcap: 30}\n", "2: model.softcap needs level fused: logits are final"},
      {"level: logits\ntask: kto_loss\n", "1: level is logits, but task kto_loss supports only level fused"},
      {"level: logits\nmodel: {dtype: bfloat16}\ngradients: {dtype: float32}\nkernel: {in_place: true}\n",
       "4: kernel.in_place needs gradients.dtype same: the gradient replaces the logits"}};
  for (const auto& [text, message] : cases) EXPECT_EQ(error(text), std::string("c.yaml:") + message);
}

TEST_F(ConfigTest, AConfigThatSpellsOutDefaultsServesBothLevels) {
  const Config config = load_config((kConfigs / "tiny.yaml").string(), std::vector<std::string>{"level=logits"});
  EXPECT_EQ(config.level, Level::kLogits);
  EXPECT_TRUE(config.is_set("backward.mode"));
  EXPECT_EQ(load_config(std::nullopt, config.settings).level, Level::kLogits);
}

TEST_F(ConfigTest, SetGoesThroughTheSameValidation) {
  EXPECT_EQ(set_error("model.dtyp=float32"), "--set model.dtyp is not a known key; did you mean model.dtype?");
  EXPECT_EQ(set_error("model={dtype: float8}"),
            "--set model: model.dtype must be float32, bfloat16, float64 or float16, not float8");
  EXPECT_EQ(set_error("seed="), "--set seed must be an integer of at least 0, not nothing");
  EXPECT_EQ(set_error("seed"), "--set seed: must have the form key=value, for example model.dtype=bfloat16");
  EXPECT_EQ(set_error("=3"), "--set =3: must have the form key=value, for example model.dtype=bfloat16");
  EXPECT_TRUE(set_error("seed=[1").starts_with("--set seed: the value is not YAML: "));
  EXPECT_EQ(error("reduction: sum\n", {"num_items_in_batch=3"}), "--set num_items_in_batch needs reduction mean");
}

TEST_F(ConfigTest, FilesThatAreNoConfigsAreOneClearLine) {
  EXPECT_EQ(error(""), "c.yaml: is empty; a config needs keys");
  EXPECT_EQ(error(" \n\n"), "c.yaml: is empty; a config needs keys");
  EXPECT_EQ(error("# only a comment\n"), "c.yaml: is empty; a config needs keys");
  EXPECT_EQ(error(std::string("\x7f"
                              "ELF\0\1",
                              6)),
            "c.yaml: is not a text file; a config is YAML");
  EXPECT_EQ(error("- a\n- b\n"), "c.yaml:1: a config is a list of `key: value` lines, and this is not");
  EXPECT_EQ(error("just words\n"), "c.yaml:1: a config is a list of `key: value` lines, and this is not");
  EXPECT_TRUE(error("seed: 1\nmodel: {name: x\n").starts_with("c.yaml:3: is not YAML: "));
  EXPECT_EQ(error("seed: 1\n---\nseed: 2\n"), "c.yaml:2: holds 2 YAML documents, not one");
  try {
    load_config(folder_.string(), {});
    FAIL() << "a directory was read as a config";
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), folder_.string() + ": is a directory, not a file");
  }
  EXPECT_THROW(load_config((folder_ / "absent.yaml").string(), {}), Error);
}

// yaml-cpp never finishes reading some of these, and returns others whose traversal would fill all memory.
TEST_F(ConfigTest, YamlThatNoConfigCouldBeIsRefused) {
  const rlimit cpu{120, 120};  // ends this process if reading would never end
  ASSERT_EQ(setrlimit(RLIMIT_CPU, &cpu), 0);
  EXPECT_EQ(error(","), "c.yaml:1: is not YAML: no value can begin here");
  EXPECT_EQ(error("seed: 1\n---\n,"), "c.yaml:3: is not YAML: no value can begin here");
  EXPECT_EQ(error("'a' ,"), "c.yaml:1: is not YAML: no value can begin here");
  EXPECT_EQ(set_error("seed=,"), "--set seed: the value is not YAML: no value can begin here");
  EXPECT_EQ(set_error("seed=1\n---\n2"), "--set seed: the value holds 2 YAML documents, not one");
  EXPECT_EQ(error("seed: 1\n...\n---\nseed: 2\n--- 3\n"), "c.yaml:3: holds 3 YAML documents, not one");
  for (const std::string one : {"[", "{", "{a: ", "- ", "? ", ": "}) {
    for (const size_t levels : {70, 600, 10000}) {
      std::string text = "seed:\n  ";
      for (size_t i = 0; i < levels; ++i) text += one;
      EXPECT_EQ(error(text), "c.yaml:2: is nested deeper than 64 levels") << one << " " << levels;
    }
  }
  EXPECT_EQ(error("seed: &a [*a]"), "c.yaml:1: holds an alias of a list or a map: write it out");
  EXPECT_EQ(error("a: &a [1, 1]\nb: [*a, *a]\n"), "c.yaml:2: holds an alias of a list or a map: write it out");
  EXPECT_EQ(error("a: &a {b: 1}\nb: *a\n"), "c.yaml:2: holds an alias of a list or a map: write it out");
  std::string list = "seed: [";
  for (int i = 0; i < 100'001; ++i) list += ",";
  EXPECT_EQ(error(list), "c.yaml:1: holds more than 100000 values");
  EXPECT_EQ(error("#" + std::string(1 << 20, ' ')), "c.yaml: holds more than 1 MiB");
  EXPECT_EQ(error("\"a\\nb\": 1"), "c.yaml:1: a b is not a known key");
}

TEST_F(ConfigTest, TheShippedConfigsLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    const Config config = load_config(entry.path().string(), {});
    EXPECT_GT(config.model.hidden_size, 0) << entry.path();
    EXPECT_GT(config.model.vocab_size, 0) << entry.path();
    EXPECT_FALSE(config.model.name.empty()) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 6);
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs / "gradcheck")) {
    const Config config = load_config(entry.path().string(), {});
    EXPECT_GT(config.model.vocab_size, 0) << entry.path();
    EXPECT_EQ(config.level == Level::kFused, config.model.hidden_size > 0) << entry.path();
  }
  EXPECT_EQ(load_config((kConfigs / "qwen2.5-1.5b-v151643.yaml").string(), {}).model.vocab_size, 151643);
  EXPECT_EQ(load_config((kConfigs / "gemma-2-2b.yaml").string(), {}).model.softcap, 30);
}

}  // namespace config_test
}  // namespace logitless::io
