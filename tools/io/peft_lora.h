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

/// It adds scale · (x aᵀ) bᵀ to what the module makes of x.
struct PeftLora {
  std::shared_ptr<const SafetensorsFile> file;
  const Tensor* a = nullptr;  ///< [r, H]
  const Tensor* b = nullptr;  ///< [V, r]
  double scale = 1;           ///< lora_alpha / r, or lora_alpha / √r

  int64_t rank() const { return a->shape[0]; }
  /// The one type in which to hand a and b on, beside hidden states of `dtype`.
  DType dtype(DType dtype) const;
};

/// The files behind `FILE` or `FILE:MODULE`, where FILE is the folder or the safetensors file in it: the
/// tensors and the config.
std::array<std::string, 2> peft_files(const std::string& spec);

/// Reads the LoRA of a head from `FILE` or `FILE:MODULE`; the module is lm_head where none is named. Throws
/// Error that names the file where there is none, where its shapes are not those of a head [V, H], and where
/// PEFT would compute something else than PeftLora says.
PeftLora read_peft_lora(const std::string& spec, int64_t stored_entries, int64_t hidden_size);

}  // namespace logitless::io
