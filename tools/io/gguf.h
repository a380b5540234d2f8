// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// GGUF files, little-endian, version 2 or 3: magic, version, counts, metadata (keys with typed values),
// tensor infos, padding, and the tensors' bytes (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
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

/// How this library reads a tensor's numbers; std::monostate: it cannot.
using GgufFormat = std::variant<std::monostate, DType, Packing>;

/// One tensor of an open file. `data` points into the file's mapping and is aligned to 8 bytes or more.
struct GgufTensor {
  std::string name;
  uint32_t type = 0;           ///< ggml's number of the type
  std::string_view type_name;  ///< as in ggml: "F32", "Q4_K", ...; empty if the number is unknown
  GgufFormat format;
  std::vector<int64_t> shape;  ///< all positive, rows last, as in [V, H]; files store them in reverse order
  int64_t rows = 1;            ///< the product of all sizes except the last: V
  int64_t cols = 1;            ///< the last size: H
  size_t row_bytes = 0;        ///< from one row to the next; 0 if the type is unknown
  const std::byte* data = nullptr;
  size_t file_offset = 0;  ///< of `data`, in bytes from the beginning of the file

  /// Returns the bytes of all rows; 0 if the type is unknown.
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes; }
  /// "IQ2_XS (type 17)", or "type 99"
  std::string type_text() const;
  /// "[32000, 4096]"
  std::string shape_text() const;
};

/// A GGUF file whose metadata and tensor infos have been checked completely: every tensor is aligned, lies
/// inside the file and overlaps no other, and keys and names are unique. A tensor of unknown type has an
/// unknown size, so only its beginning is checked. The file may hold tensors of types that this library does
/// not read; asking for one (weight_of) is an error.
class GgufFile {
 public:
  /// Throws Error that names the file and, if one is at fault, the key or the tensor.
  explicit GgufFile(std::string path);

  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }
  /// Returns the alignment of tensors in bytes: general.alignment, or 32.
  uint32_t alignment() const { return alignment_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Returns nullptr if there is no such tensor.
  const GgufTensor* find(std::string_view name) const;
  /// "model.gguf: tensor output.weight"
  std::string place_of(const GgufTensor& tensor) const;
  /// Throws Error if the file has been truncated since it was opened.
  void check_size() const { file_.check_size(); }

  /// Returns the value of a key, or nothing if the file does not have it. Throws Error if the value has
  /// another type, is a text that is not UTF-8, or is an integer above 2^63 - 1.
  std::optional<std::string> text(const std::string& key) const;
  std::optional<double> real(const std::string& key) const;      ///< reads float32 and float64
  std::optional<int64_t> integer(const std::string& key) const;  ///< reads every integer type
  /// Returns general.architecture, such as "gemma2". Throws Error if the file lacks it, too.
  std::string architecture() const;

 private:
  struct Value {
    uint32_t type;
    size_t offset;  // from the beginning of the file; the whole value is known to lie inside
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

/// Returns a tensor [V, H] of an open file as the weight of a head without bias and softcap. It is read in
/// place, so `file` must outlive it. Throws Error if its type is not read or it has more than two dimensions.
HeadMatrices weight_of(const GgufFile& file, const GgufTensor& tensor);

/// The LM head of a model, read in place: the file must outlive it.
struct GgufHead {
  const GgufTensor* weight = nullptr;
  bool tied = false;  ///< weight is token_embd.weight, the model's input embedding
  HeadMatrices head;
};

/// Finds output.weight (else token_embd.weight), output.bias (F32) if present, and
/// <architecture>.final_logit_softcapping if the metadata has it. Throws Error if the weight is missing or
/// cannot be read, if bias or softcap do not fit, and for one part of a split model, because other parts may
/// hold any of these.
GgufHead find_head(const GgufFile& file);

}  // namespace logitless::io
