// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// LoRA adapters as saved by PEFT: which are read, and which are refused.
#include "io/peft_lora.h"

#include <cmath>
#include <cstring>

#include "folder_test.h"
#include "io/error.h"
#include "peft_adapter.h"

namespace logitless::testing {
namespace peft_lora_test {

using io::PeftLora;
using nlohmann::json;

constexpr int64_t kHidden = 5, kVocab = 7;

class PeftLoraTest : public FolderTest {
 protected:
  PeftAdapter adapter() const { return PeftAdapter(kHidden, kVocab); }
  PeftLora read(const PeftAdapter& of, const std::string& module = "") const {
    return io::read_peft_lora(of.save(folder_ / "adapter") + module, kVocab, kHidden);
  }
  double scale_with(const json& members) const { return read(adapter().with(members)).scale; }
  std::string error_of(const std::string& spec) const {
    try {
      io::read_peft_lora(spec, kVocab, kHidden);
    } catch (const io::Error& e) {
      return without_folder(e.what());
    }
    return "";
  }
  std::string error(const PeftAdapter& of, const std::string& module = "") const {
    return error_of(of.save(folder_ / "adapter") + module);
  }
  std::string error_with(const json& members) const { return error(adapter().with(members)); }
};

TEST_F(PeftLoraTest, HasTheMatricesAndTheScale) {
  const PeftAdapter saved = adapter();
  saved.save(folder_ / "adapter");
  for (const char* spec : {"adapter", "adapter/", "adapter/adapter_model.safetensors", "adapter:lm_head"}) {
    const PeftLora lora = io::read_peft_lora(path(spec), kVocab, kHidden);
    EXPECT_EQ(lora.rank(), 2);
    EXPECT_EQ(lora.a->shape, (std::vector<int64_t>{2, kHidden}));
    EXPECT_EQ(lora.b->shape, (std::vector<int64_t>{kVocab, 2}));
    EXPECT_EQ(std::memcmp(lora.a->data, saved.a.data(), lora.a->bytes), 0);
    EXPECT_EQ(std::memcmp(lora.b->data, saved.b.data(), lora.b->bytes), 0);
    EXPECT_EQ(lora.scale, 1.5);
    EXPECT_EQ(lora.dtype(DType::kBFloat16), DType::kFloat32);
    EXPECT_EQ(lora.dtype(DType::kFloat64), DType::kFloat64);
  }
}

TEST_F(PeftLoraTest, TheScaleIsThatOfPeft) {
  EXPECT_EQ(scale_with({{"lora_alpha", 16}}), 8);
  EXPECT_EQ(scale_with({{"lora_alpha", 0.5}}), 0.25);
  EXPECT_EQ(scale_with({{"use_rslora", true}}), 3 / std::sqrt(2.0));
  // The rank is the module's. An expression must only match the rank.
  for (const char* pattern : {"lm_head", "^lm_head", ".*head", "(lm_head|q_proj)"}) {
    EXPECT_EQ(scale_with({{"r", 8}, {"rank_pattern", {{"q_proj", 4}, {".*_proj", 16}, {pattern, 2}}}}), 1.5) << pattern;
  }
  EXPECT_EQ(scale_with({{"rank_pattern", {{"q_proj", 4}, {".*_proj", 16}}}}), 1.5);
  EXPECT_EQ(scale_with({{"use_rslora", nullptr}}), 1.5);
  for (const char* pattern : {"lm_head", "^lm_head"}) {
    EXPECT_EQ(scale_with({{"alpha_pattern", {{"q_proj", 9}, {pattern, 10}}}}), 5) << pattern;
  }
  EXPECT_EQ(scale_with({{"alpha_pattern", {{"head", 10}, {"model.lm_head", 12}, {"^model.lm_head", 12}}}}), 1.5);
}

TEST_F(PeftLoraTest, AModuleMayStandDeeperOrHaveAnotherName) {
  PeftAdapter saved = adapter().with({{"alpha_pattern", {{"language_model\\.lm_head", 10}}}});
  saved.module = "base_model.model.language_model.lm_head.";
  EXPECT_EQ(read(saved).scale, 5);
  EXPECT_EQ(read(saved, ":language_model.lm_head").scale, 5);
  saved.module = "base_model.model.embed_out.";
  EXPECT_EQ(read(saved, ":embed_out").scale, 1.5);
  EXPECT_EQ(error(saved), "adapter/adapter_model.safetensors: has no LoRA of lm_head, but of embed_out, q_proj");
}

TEST_F(PeftLoraTest, WhatIsNoPlainLoraIsRefusedByName) {
  const std::string config = "adapter/adapter_config.json: ";
  const std::string plain = ", which is not supported: only plain LoRA is read";
  EXPECT_EQ(error_with({{"use_dora", true}}), config + "use_dora is true" + plain);
  EXPECT_EQ(error_with({{"use_bdlora", {{"nblocks", 2}}}}), config + "use_bdlora is {\"nblocks\":2}" + plain);
  EXPECT_EQ(error_with({{"alora_invocation_tokens", {1, 2}}}), config + "alora_invocation_tokens is [1,2]" + plain);
  EXPECT_EQ(error_with({{"peft_type", "LOHA"}}), config + "peft_type is LOHA: only LORA is read");
  for (const char* start : {"pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"}) {
    EXPECT_EQ(error_with({{"init_lora_weights", start}}),
              config + "init_lora_weights is " + start +
                  ", with which PEFT also changes the weight itself: save it as a plain LoRA, or merge it");
  }
  for (const json& start : {json("gaussian"), json("eva"), json("orthogonal"), json("mica"), json(false)}) {
    EXPECT_EQ(error_with({{"init_lora_weights", start}}), "");
  }
  EXPECT_EQ(error_with({{"trainable_token_indices", {1, 2}}}),
            config +
                "trainable_token_indices is set: it trains rows of embeddings, and of a head that shares them, which "
                "are not read");
  EXPECT_EQ(error_with({{"target_parameters", {"mlp.experts", "lm_head.weight"}}}),
            config + "target_parameters has lm_head.weight: only LoRA of target_modules is read");
  EXPECT_EQ(error_with({{"target_parameters", {"mlp.experts"}}}), "");
}

TEST_F(PeftLoraTest, TensorsThatChangeTheHeadAreRefused) {
  const std::vector<float> values(kHidden * kVocab, 1.0F);
  const std::string file = "adapter/adapter_model.safetensors: ", head = "base_model.model.lm_head.";
  EXPECT_EQ(error(adapter().with_tensor({head + "lora_magnitude_vector", "F32", {kVocab}, values.data()})),
            file + "tensor " + head + "lora_magnitude_vector is not part of a plain LoRA");
  EXPECT_EQ(
      error(adapter().with({{"bias", "all"}}).with_tensor({head + "base_layer.bias", "F32", {kVocab}, values.data()})),
      file + "tensor " + head + "base_layer.bias is not part of a plain LoRA");
  EXPECT_EQ(error(adapter().with({{"bias", "all"}})), "");

  // A whole head that was trained in addition to the LoRA of other modules.
  PeftAdapter saved = adapter().with({{"modules_to_save", {"lm_head"}}, {"target_modules", {"q_proj"}}});
  saved.a.clear(), saved.b.clear();
  EXPECT_EQ(error(saved), file + "has no LoRA of lm_head, but of q_proj");
  saved.with_tensor({head + "weight", "F32", {kVocab, kHidden}, values.data()});
  EXPECT_EQ(error(saved), file + "has no LoRA of lm_head: modules_to_save has trained the whole head, which is " +
                              path("adapter/adapter_model.safetensors") + ":" + head + "weight");
}

TEST_F(PeftLoraTest, ShapesAreThoseOfTheHead) {
  const std::string file = "adapter/adapter_model.safetensors: ", head = "tensor base_model.model.lm_head.";
  EXPECT_EQ(error(PeftAdapter(4, kVocab)),
            file + head + "lora_A.weight [2, 4]: its columns do not match the 5 columns of the hidden states");
  EXPECT_EQ(error(PeftAdapter(kHidden, 8)),
            file + head + "lora_B.weight [8, 2]: its rows do not match the 7 vocabulary entries of the head");
  PeftAdapter saved = adapter();
  saved.b.clear();
  EXPECT_EQ(error(saved), file + "has no " + head + "lora_B.weight");
  saved.with_tensor({"base_model.model.lm_head.lora_B.weight", "F32", {kVocab, 1}, saved.a.data()});
  EXPECT_EQ(error(saved), file + head + "lora_B.weight [7, 1]: its columns do not match the 2 rows of lora_A");
  saved = adapter();
  saved.with_tensor({"base_model.model.mtp.lm_head.lora_A.weight", "F32", {2, kHidden}, saved.a.data()});
  // One is lm_head itself, but it must be named.
  EXPECT_EQ(error(saved), file + "has a LoRA of mtp.lm_head and of lm_head: name one as FILE:MODULE");
  EXPECT_EQ(error(saved, ":lm_head"), "");
}

TEST_F(PeftLoraTest, BadConfigsSayWhatIsWrong) {
  const std::string config = "adapter/adapter_config.json: ";
  EXPECT_EQ(error_with({{"r", 4}}), config + "r is 4, but the LoRA of lm_head has rank 2");
  EXPECT_EQ(error_with({{"rank_pattern", {{"lm_head", 4}}}}),
            config + "rank_pattern: lm_head is 4, but the LoRA of lm_head has rank 2");
  EXPECT_EQ(error_with({{"rank_pattern", {{"q_proj", 2}, {"lm_head", 4}, {"z.*", 2}}}}),
            config + "rank_pattern: lm_head is 4, but the LoRA of lm_head has rank 2");
  EXPECT_EQ(error_with({{"r", 4}, {"rank_pattern", {{"q_proj", 2}, {".*_proj", 8}}}}),
            config + "r is 4, but the LoRA of lm_head has rank 2");
  for (const json& value : {json("yes"), json("false"), json(""), json(1), json(0), json::array()}) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    EXPECT_EQ(error_with({{"use_rslora", value}}), config + "use_rslora is " + text + "; it must be true or false");
  }
  EXPECT_EQ(error_with({{"lora_alpha", nullptr}}), config + "lora_alpha must be a number");
  for (const char* pattern : {"lm_h.*", "(lm_head)", "lm_head$", "\\"}) {
    EXPECT_EQ(error_with({{"alpha_pattern", {{pattern, 1}}}}),
              config + "alpha_pattern has the expression " + pattern + ": only names of modules are read");
  }
  const std::string folder = adapter().save(folder_ / "adapter");
  const auto error_of_text = [&](const std::string& text) {
    write("adapter/adapter_config.json", text);
    return error_of(folder);
  };
  EXPECT_EQ(error_of_text("[1]"), config + "must be a JSON object");
  EXPECT_EQ(error_of_text("{\"r\": 2"), config + "is not JSON from byte 8 on");
  EXPECT_EQ(error_of_text(std::string(40, '[') + std::string(40, ']')), config + "is nested deeper than 32 levels");
  std::filesystem::remove(path("adapter/adapter_config.json"));
  EXPECT_TRUE(error_of(folder).starts_with("adapter/adapter_config.json: cannot be opened")) << error_of(folder);
  write("adapter/adapter_config.json", peft_config().dump());
  std::filesystem::remove(path("adapter/adapter_model.safetensors"));
  EXPECT_TRUE(error_of(folder).starts_with("adapter/adapter_model.safetensors: cannot be opened")) << error_of(folder);
}

}  // namespace peft_lora_test
}  // namespace logitless::testing
