// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// GGUF files, little-endian and of version 2 or 3: magic, version, counts, metadata (keys with typed values),
// infos of tensors, padding, and the tensors' bytes
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/matrices.h"
#include "io/error.h"
#include "io/mapped_file.h"
#include "logitless/dtype.h"
#include "logitless/packed.h"

namespace logitless::io {

/// How this library reads a tensor's numbers; std::monostate: it does not.
using GgufFormat = std::variant<std::monostate, DType, Packing>;

/// One tensor of an open file. `data` points into the file's mapping and is aligned to 8 bytes or more.
struct GgufTensor {
  std::string name;
  uint32_t type = 0;           ///< ggml's number of the type
  std::string_view type_name;  ///< as in ggml: "F32", "Q4_K", ...; empty where the number is not known
  GgufFormat format;
  std::vector<int64_t> shape;  ///< all positive, rows last, as in [V, H]; a file has them the other way round
  int64_t rows = 1;            ///< the product of all sizes but the last: V
  int64_t cols = 1;            ///< the last size: H
  size_t row_bytes = 0;        ///< from one row to the next; 0 where the type is not known
  const std::byte* data = nullptr;
  size_t file_offset = 0;  ///< of `data`, in bytes from the beginning of the file

  /// Of all rows; 0 where the type is not known.
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes; }
  /// "IQ2_XS (type 17)", or "type 99"
  std::string type_text() const;
  /// "[32000, 4096]"
  std::string shape_text() const;
};

/// A GGUF file whose metadata and infos of tensors have been checked whole: every tensor is aligned, lies
/// inside the file and overlaps no other, and no key and no name stands there twice. Of a tensor whose type
/// is not known the size is not known either, and only its beginning is checked. Tensors of types that this
/// library does not read may be there; asking for one (weight_of) is the error.
class GgufFile {
 public:
  /// Throws Error that names the file and, where there is one, the key or the tensor.
  explicit GgufFile(std::string path);

  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }
  /// Of tensors, in bytes: general.alignment, or 32.
  uint32_t alignment() const { return alignment_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// nullptr where the file has no such tensor.
  const GgufTensor* find(std::string_view name) const;
  /// "model.gguf: tensor output.weight"
  std::string place_of(const GgufTensor& tensor) const;
  /// Throws Error where the file has been cut short since it was opened.
  void check_size() const { file_.check_size(); }

  /// The value of a key, or nothing where the file does not have it. Throws Error where the value has another
  /// type, is a text that is not UTF-8, or is an integer above 2^63 - 1.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<double> real(const std::string& key) const;      ///< of float32 and float64
  std::optional<int64_t> integer(const std::string& key) const;  ///< of every type of integers
  /// general.architecture, such as "gemma2". Throws Error also where the file has none.
  std::string architecture() const;

 private:
  struct Value {
    uint32_t type;
    size_t offset;  // from the beginning of the file; it has been checked that the value stands there whole
  };

  void read_all();
  const Value* value_of(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& key, const Value& value, const char* rule) const;

  MappedFile file_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  std::unordered_map<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
};

/// A tensor [V, H] of an open file as the weight of a head without bias and softcap, read in place as long as
/// `file` lives. Throws Error where its type is not read or it has more than two dimensions.
HeadMatrices weight_of(const GgufFile& file, const GgufTensor& tensor);

/// The LM head of a model, read in place as long as the file lives.
struct GgufHead {
  const GgufTensor* weight = nullptr;
  bool tied = false;  ///< weight is token_embd.weight, which the model reads its tokens with, too
  HeadMatrices head;
};

/// Finds output.weight, or token_embd.weight where there is none, output.bias (F32) where there is one, and
/// <architecture>.final_logit_softcapping where the metadata has it. Throws Error where the weight is missing
/// or cannot be read, where bias or softcap do not fit, and for a part of a split model, whose other parts
/// may hold any of these.
GgufHead find_head(const GgufFile& file);

}  // namespace logitless::io
