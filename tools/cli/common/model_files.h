// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states and a head as files hold them, in the types that they have there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/matrices.h"
#include "io/gguf.h"
#include "io/safetensors.h"

namespace logitless::cli {

/// Tells whether the file begins as GGUF files do.
bool is_gguf(const std::string& path);

/// Keeps what views of files point to.
class ModelFiles {
 public:
  /// [N, H] or [B, T, H] of the file's own type. Here and below `flag` is the option that names the file, and
  /// messages begin with it. Throws io::Error.
  HiddenStates hidden(const std::string& flag, const std::string& spec, const char* conventional_name);
  /// [V, H], or [H, V] where only that fits `hidden_size`; of a GGUF file its head, packed as it stands
  /// there, with bias and softcap, or the tensor that is named. Throws io::Error.
  HeadMatrices head(const std::string& flag, const std::string& spec, const char* conventional_name,
                    int64_t hidden_size);
  /// Of a head, as PEFT saves it. Throws io::Error.
  LoraMatrices lora(const std::string& flag, const std::string& spec, const HeadMatrices& head);
  /// [V] of a head. Throws io::Error.
  ConstVector bias(const std::string& flag, const std::string& spec, const char* conventional_name);
  /// [N] or [B, T]. Throws io::Error.
  std::vector<int64_t> ids(const std::string& flag, const std::string& spec, const char* conventional_name);
  /// Throws io::Error where a file has been cut short since it was opened.
  void check() const;

 private:
  io::TensorHandle open(const std::string& flag, const std::string& spec, const io::TensorWish& wish);
  /// The elements in their own type: where they stand, or a copy where that is misaligned.
  const void* elements(const io::Tensor& tensor);

  HeadMatrices gguf_head(const std::string& spec, int64_t hidden_size);

  std::vector<std::shared_ptr<const io::SafetensorsFile>> files_;
  std::vector<std::unique_ptr<const io::GgufFile>> gguf_files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace logitless::cli
