// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Folders of adapters as saved by PEFT.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace logitless::testing {

/// Returns PEFT 0.21.2's config for LoraConfig(target_modules=["lm_head", "q_proj"], r=2, lora_alpha=3).
inline nlohmann::json peft_config() {
  return nlohmann::json::parse(R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
    "auto_mapping": null, "base_model_name_or_path": null, "bias": "none", "corda_config": null,
    "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false,
    "inference_mode": true, "init_lora_weights": true, "kasa_config": null, "layer_replication": null,
    "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 3, "lora_bias": false,
    "lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
    "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2",
    "qalora_group_size": 16, "r": 2, "rank_pattern": {}, "revision": null, "target_modules": ["q_proj", "lm_head"],
    "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
    "use_dora": false, "use_qalora": false, "use_rslora": false, "velora_config": null})");
}

/// The LoRA of a head, with PEFT's tensor names.
class PeftAdapter {
 public:
  std::string module = "base_model.model.lm_head.";
  int64_t rank = 2, hidden, vocab;
  std::vector<float> a, b;
  nlohmann::json config = peft_config();
  std::vector<io::TensorToWrite> more;  ///< tensors in addition to a and b

  PeftAdapter(int64_t hidden_, int64_t vocab_) : hidden(hidden_), vocab(vocab_) {
    for (int64_t i = 0; i < rank * hidden; ++i) a.push_back(std::sin(static_cast<float>(3 * i + 1)));
    for (int64_t i = 0; i < vocab * rank; ++i) b.push_back(std::cos(static_cast<float>(2 * i + 1)));
  }
  /// Changes members of the config.
  PeftAdapter& with(const nlohmann::json& members) {
    for (const auto& [key, value] : members.items()) config[key] = value;
    return *this;
  }
  PeftAdapter& with_tensor(const io::TensorToWrite& tensor) {
    more.push_back(tensor);
    return *this;
  }
  /// Writes or rewrites the folder, and returns its path.
  std::string save(const std::filesystem::path& folder) const {
    std::filesystem::create_directory(folder);
    std::ofstream(folder / "adapter_config.json") << config.dump(2);
    std::vector<io::TensorToWrite> tensors = more;
    const float layer[4] = {};
    const std::string layers = "base_model.model.model.layers.0.self_attn.q_proj.";
    tensors.push_back({layers + "lora_A.weight", "F32", {2, 2}, layer});
    tensors.push_back({layers + "lora_B.weight", "F32", {2, 2}, layer});
    if (!a.empty()) tensors.push_back({module + "lora_A.weight", "F32", {rank, hidden}, a.data()});
    if (!b.empty()) tensors.push_back({module + "lora_B.weight", "F32", {vocab, rank}, b.data()});
    io::write_safetensors((folder / "adapter_model.safetensors").string(), tensors);
    return folder.string();
  }
  /// Returns element (v, h) of scale · b a.
  double at(double scale, int64_t v, int64_t h) const {
    double sum = 0;
    for (int64_t k = 0; k < rank; ++k) {
      sum += static_cast<double>(b[static_cast<size_t>(v * rank + k)]) *
             static_cast<double>(a[static_cast<size_t>(k * hidden + h)]);
    }
    return scale * sum;
  }
};

}  // namespace logitless::testing
