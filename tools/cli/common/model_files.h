// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states and a head as files hold them, in the types that they have there.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf.h"
#include "io/safetensors.h"
#include "logitless/logits.h"

namespace logitless::cli {

/// Tells whether the file begins as GGUF files do.
bool is_gguf(const std::string& path);

/// Keeps what views of files point to.
class ModelFiles {
 public:
  // In each of these `flag` is the option that names the file, and messages begin with it. All throw
  // io::Error.

  /// Opens a file, which stays open, and finds the tensor.
  io::TensorHandle open(const std::string& flag, const std::string& spec, const io::TensorWish& wish);
  /// Returns a tensor [N, H], [B, T, H] (as [N, H]) or [V] in its own type.
  ConstTensor floats(const std::string& flag, const std::string& spec, const char* conventional_name, int rank);
  /// Returns [V, H], or [H, V] turned where only that fits `hidden_size`; of a GGUF file its head, packed as
  /// it stands there, with bias and softcap, or the tensor that is named.
  LmHead head(const std::string& flag, const std::string& spec, const char* conventional_name, int64_t hidden_size);
  /// Returns the LoRA of a head, as PEFT saves it.
  LoraAdapter lora(const std::string& flag, const std::string& spec, int64_t stored_entries, int64_t hidden_size);
  void keep(std::shared_ptr<const io::SafetensorsFile> file) { files_.push_back(std::move(file)); }
  /// Throws io::Error if a file has been cut short since it was opened: what was computed of it means
  /// nothing.
  void check() const;

 private:
  /// Returns the tensor in its own type: where it stands, or a copy where that is misaligned.
  ConstTensor matrix(const io::Tensor& tensor);
  LmHead gguf_head(const std::string& spec, int64_t hidden_size);

  std::vector<std::shared_ptr<const io::SafetensorsFile>> files_;
  std::vector<std::unique_ptr<const io::GgufFile>> gguf_files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace logitless::cli
