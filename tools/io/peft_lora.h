// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A LoRA as PEFT saves it (https://github.com/huggingface/peft): a folder with adapter_config.json and
// adapter_model.safetensors, where module m has base_model.model.<m>.lora_A.weight [r, H] and
// base_model.model.<m>.lora_B.weight [V, r].
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "io/safetensors.h"

namespace logitless::io {

/// A LoRA: it adds scale · (x aᵀ) bᵀ to the module's output for x.
struct PeftLora {
  std::shared_ptr<const SafetensorsFile> file;
  const Tensor* a = nullptr;  ///< [r, H]
  const Tensor* b = nullptr;  ///< [V, r]
  double scale = 1;           ///< lora_alpha / r, or lora_alpha / √r

  int64_t rank() const { return a->shape[0]; }
  /// Returns the type to use for both a and b, with hidden states of `dtype`.
  DType dtype(DType dtype) const;
};

/// Returns the files of `FILE` or `FILE:MODULE`, where FILE is the folder or its safetensors file: the
/// tensors, then the config.
std::array<std::string, 2> peft_files(const std::string& spec);

/// Reads the LoRA of a head from `FILE` or `FILE:MODULE`; the default module is lm_head. Throws Error that
/// names the file if there is none, if its shapes do not fit a head [V, H], or if PEFT would compute
/// something other than PeftLora describes.
PeftLora read_peft_lora(const std::string& spec, int64_t stored_entries, int64_t hidden_size);

}  // namespace logitless::io
