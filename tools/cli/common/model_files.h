// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Hidden states and heads read from files, in the types that they have there.
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

/// Returns true if the file begins as GGUF files do.
bool is_gguf(const std::string& path);

/// Owns the files and copies that its views point to.
class ModelFiles {
 public:
  // In each of these `flag` is the option that names the file; messages begin with it. All throw io::Error.

  /// Opens a file, keeps it open, and finds the tensor.
  io::TensorHandle open(const std::string& flag, const std::string& spec, const io::TensorWish& wish);
  /// Returns a tensor [N, H], [B, T, H] (as [N, H]) or [V] in its own type.
  ConstTensor floats(const std::string& flag, const std::string& spec, const char* conventional_name, int rank);
  /// Returns [V, H]; a stored [H, V] is transposed if only that fits `hidden_size`. From a GGUF file: its
  /// head, packed as stored, with bias and softcap, or the named tensor.
  LmHead head(const std::string& flag, const std::string& spec, const char* conventional_name, int64_t hidden_size);
  /// Returns the LoRA of a head, as saved by PEFT.
  LoraAdapter lora(const std::string& flag, const std::string& spec, int64_t stored_entries, int64_t hidden_size);
  void keep(std::shared_ptr<const io::SafetensorsFile> file) { files_.push_back(std::move(file)); }
  /// Throws io::Error if a file has been truncated since it was opened: results computed from it are
  /// meaningless.
  void check() const;

 private:
  /// Returns the tensor in its own type: in place, or a copy if it is misaligned.
  ConstTensor matrix(const io::Tensor& tensor);
  LmHead gguf_head(const std::string& spec, int64_t hidden_size);

  std::vector<std::shared_ptr<const io::SafetensorsFile>> files_;
  std::vector<std::unique_ptr<const io::GgufFile>> gguf_files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace logitless::cli
