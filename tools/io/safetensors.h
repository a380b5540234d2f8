// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// safetensors files: an 8-byte little-endian header length, a JSON header, then the tensors' bytes without
// gaps (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "io/error.h"
#include "io/mapped_file.h"
#include "logitless/dtype.h"

namespace logitless::io {

/// One tensor of an open file. `data` points into the file's mapping and may be misaligned for its type.
struct Tensor {
  std::string name;
  std::string dtype;  ///< as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
  size_t file_offset = 0;  ///< of `data`, in bytes from the beginning of the file

  int64_t elements() const;
  /// The product of all dimensions but the last: B * T of [B, T, H].
  int64_t rows() const;
  bool is_float() const;    ///< F32, F16, BF16 or F64
  bool is_integer() const;  ///< I32 or I64
  bool is_flag() const;     ///< BOOL or U8
  /// "[2048, 576]"
  std::string shape_text() const;
};

/// A safetensors file whose header has been checked whole: every tensor lies inside the file, and tensors
/// neither overlap nor leave gaps. Tensors of types this library does not read may be there; asking for one
/// is the error.
class SafetensorsFile {
 public:
  /// Throws Error that names the file and, where there is one, the tensor.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Throws Error where the file has been cut short since it was opened.
  void check_size() const { file_.check_size(); }
  /// nullptr where the file has no such tensor.
  const Tensor* find(std::string_view name) const;

 private:
  void read_header();

  MappedFile file_;
  std::vector<Tensor> tensors_;
};

enum class TensorClass { kFloat, kInteger, kFlag };

/// What a command needs from a file: the class and rank of the tensor, and what it is called by convention.
struct TensorWish {
  const char* conventional_name;  ///< "hidden", "lm_head", "targets", "lengths", "bias"
  TensorClass tensor_class;
  int rank;
  bool batched = false;  ///< one dimension more is welcome: [B, T, ...] where the wish is [N, ...]
};

/// A tensor together with the file that holds it.
struct TensorHandle {
  std::shared_ptr<const SafetensorsFile> file;
  const Tensor* tensor = nullptr;
  std::string flag = {};  ///< that named it, for messages

  /// "--hidden states.safetensors: tensor hidden"
  std::string place() const;
};

/// `FILE` or `FILE:tensor` taken apart; the name is empty where there is none. Throws Error for `FILE:`.
struct TensorSpec {
  std::string path;
  std::string name;
};
TensorSpec split_spec(const std::string& spec);

/// Finds the tensor that `spec` means: `FILE:tensor`, or `FILE` with the conventional name, that name and
/// ".weight" (as PyTorch names a module's), or exactly one tensor of the wished class and rank. Throws Error
/// that names file and tensor.
TensorHandle find_tensor(const std::string& spec, const TensorWish& wish);

/// The element type of a float tensor.
DType natural_dtype(const Tensor& tensor);

/// How a file spells an element type: "F32", "BF16", ...
const char* spelling_of(DType dtype);

/// Whether the file's own bytes can serve as `dtype` in place: same type, aligned.
bool usable_in_place(const Tensor& tensor, DType dtype);

/// Writes the elements of a float tensor as `dtype` to `out` (elements() · size_of(dtype) bytes). Narrowing
/// rounds to nearest even, once.
void convert_floats(const Tensor& tensor, DType dtype, void* out);

/// The elements of an I32 or I64 tensor.
std::vector<int64_t> read_integers(const Tensor& tensor);

/// The elements of a BOOL or U8 tensor.
std::vector<uint8_t> read_flags(const Tensor& tensor);

/// Rounding to nearest even; NaN stays NaN.
bfloat16 to_bfloat16(float value);
float16 to_float16(float value);
float to_float(bfloat16 value);
float to_float(float16 value);
inline float to_float(float value) { return value; }

template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return to_float16(value);
  } else {
    return value;
  }
}

/// Calls `use` with a value of the type's own C++ type.
template <class Use>
decltype(auto) with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat64:
      return use(double());
    case DType::kFloat32:
      return use(float());
    case DType::kFloat16:
      return use(float16());
    default:
      break;
  }
  return use(bfloat16());
}

/// One tensor to write. `dtype` is the file's spelling.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

/// Writes `path` anew, whole or not at all: a regular file keeps what it had until the new one is complete.
/// Throws Error: unknown dtype, two tensors of one name, or the file system's complaint.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors);

/// Bytes of one element, or 0 for a dtype that is not known.
size_t safetensors_element_bytes(std::string_view dtype);

}  // namespace logitless::io
