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
  /// Returns the product of all dimensions except the last: B * T for [B, T, H].
  int64_t rows() const;
  bool is_float() const;    ///< F32, F16, BF16 or F64
  bool is_integer() const;  ///< I32 or I64
  bool is_flag() const;     ///< BOOL or U8
  /// "[2048, 576]"
  std::string shape_text() const;
};

/// A safetensors file whose header has been checked completely: every tensor lies inside the file, and
/// tensors neither overlap nor leave gaps. The file may hold tensors of types that this library does not
/// read; asking for one is an error.
class SafetensorsFile {
 public:
  /// Throws Error that names the file and, if one is at fault, the tensor.
  explicit SafetensorsFile(std::string path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Throws Error if the file has been truncated since it was opened.
  void check_size() const { file_.check_size(); }
  /// Returns nullptr if there is no such tensor.
  const Tensor* find(std::string_view name) const;

 private:
  void read_header();

  MappedFile file_;
  std::vector<Tensor> tensors_;
};

enum class TensorClass { kFloat, kInteger, kFlag };

/// What a command needs from a file: the class and rank of a tensor, and its conventional name.
struct TensorWish {
  const char* conventional_name;  ///< "hidden", "lm_head", "targets", "lengths", "bias"
  TensorClass tensor_class;
  int rank;
  bool batched = false;  ///< accepts one dimension more: [B, T, ...] for [N, ...]
};

/// A tensor, and the file that holds it.
struct TensorHandle {
  std::shared_ptr<const SafetensorsFile> file;
  const Tensor* tensor = nullptr;
  std::string flag = {};  ///< that named the file, for messages

  /// "--hidden states.safetensors: tensor hidden"
  std::string place() const;
};

/// The parts of `FILE` or `FILE:tensor`; the name may be empty. split_spec() throws Error for `FILE:`.
struct TensorSpec {
  std::string path;
  std::string name;
};
TensorSpec split_spec(const std::string& spec);

/// Finds a tensor by `FILE:tensor`. For `FILE` alone it takes the tensor with the conventional name, or with
/// that name and ".weight" (as PyTorch names a module's), or the only one of the wished class and rank.
/// Throws Error that names file and tensor.
TensorHandle find_tensor(const std::string& spec, const TensorWish& wish);

/// Returns the element type of a float tensor.
DType natural_dtype(const Tensor& tensor);

/// Returns how a file spells an element type: "F32", "BF16", ...
const char* spelling_of(DType dtype);

/// Returns true if the file's bytes can serve as `dtype` in place: same type, aligned.
bool usable_in_place(const Tensor& tensor, DType dtype);

/// Writes the elements of a float tensor as `dtype` to `out` (elements() · size_of(dtype) bytes). Narrowing
/// rounds to nearest even, once.
void convert_floats(const Tensor& tensor, DType dtype, void* out);

/// Returns the elements of an I32 or I64 tensor.
std::vector<int64_t> read_integers(const Tensor& tensor);

/// Returns the elements of a BOOL or U8 tensor.
std::vector<uint8_t> read_flags(const Tensor& tensor);

/// Rounds to nearest even; NaN stays NaN.
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

/// Calls `use` with a value of the C++ type of `dtype`.
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

/// Writes `path` whole or not at all: an existing regular file keeps its content until the new one is
/// complete. Throws Error: unknown dtype, two tensors of one name, or a failure of the file system.
void write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors);

/// Returns the bytes of one element, or 0 for an unknown dtype.
size_t safetensors_element_bytes(std::string_view dtype);

}  // namespace logitless::io
