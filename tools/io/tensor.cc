// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Properties of a file's tensor, the search for one, and the conversion of its elements to the library's
// types.
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>

#include "io/error.h"
#include "io/safetensors.h"

namespace logitless::io {
namespace {

constexpr size_t kMostNames = 8;  // in a one-line message

const char* description_of(TensorClass tensor_class) {
  if (tensor_class == TensorClass::kFlag) return "BOOL or U8";
  return tensor_class == TensorClass::kFloat ? "F32, F16, BF16 or F64" : "I32 or I64";
}

bool belongs_to(const Tensor& tensor, TensorClass tensor_class) {
  if (tensor_class == TensorClass::kFlag) return tensor.is_flag();
  return tensor_class == TensorClass::kFloat ? tensor.is_float() : tensor.is_integer();
}

// Lists the largest tensors: a checkpoint's head and embedding come before its hundreds of others.
std::string names_in(const SafetensorsFile& file) {
  if (file.tensors().empty()) return "no tensor";
  std::vector<Tensor> tensors = file.tensors();
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const Tensor& a, const Tensor& b) { return a.elements() > b.elements(); });
  const size_t named = std::min(tensors.size(), kMostNames);
  std::string text;
  for (size_t i = 0; i < named; ++i) {
    text += (i ? ", " : "") + one_line(tensors[i].name, 60) + " " + one_line(tensors[i].dtype, 20) +
            tensors[i].shape_text();
  }
  if (named < tensors.size()) text += " and " + std::to_string(tensors.size() - named) + " smaller ones";
  return text;
}

bool has_wished_rank(const Tensor& tensor, const TensorWish& wish) {
  const int rank = static_cast<int>(tensor.shape.size());
  return rank == wish.rank || (wish.batched && rank == wish.rank + 1);
}

std::string dimensions_of(const TensorWish& wish) {
  std::string text = std::to_string(wish.rank);
  if (wish.batched) text += " or " + std::to_string(wish.rank + 1);
  return text + (text == "1" ? " dimension" : " dimensions");
}

void check_wish(const SafetensorsFile& file, const Tensor& tensor, const TensorWish& wish) {
  const std::string place = file.path() + ": tensor " + one_line(tensor.name) + ": ";
  if (!belongs_to(tensor, wish.tensor_class)) {
    throw Error(place + "dtype is " + one_line(tensor.dtype, 20) + "; " + wish.conventional_name + " must be " +
                description_of(wish.tensor_class));
  }
  if (!has_wished_rank(tensor, wish)) {
    throw Error(place + "shape is " + tensor.shape_text() + "; " + wish.conventional_name + " must have " +
                dimensions_of(wish));
  }
}

// Rounds to odd. A float64 must not reach a 16-bit type through a float32 rounded to nearest, because two
// roundings can miss the nearest value. After rounding to odd, the second rounding still sees on which side
// of a tie the value lies.
float narrow_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool rounded_away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  if (rounded_away) bits -= 1;  // truncated now, also if the rounding went to infinity
  return std::bit_cast<float>(bits | 1u);
}

// Rounds at most once.
template <class To, class From>
To converted(From value) {
  if constexpr (!std::is_same_v<From, double>) {
    return from_float<To>(to_float(value));
  } else if constexpr (sizeof(To) < sizeof(float)) {
    return from_float<To>(narrow_to_odd(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

int64_t Tensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t Tensor::rows() const {
  return std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
}

bool Tensor::is_float() const { return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64"; }

bool Tensor::is_integer() const { return dtype == "I32" || dtype == "I64"; }

bool Tensor::is_flag() const { return dtype == "BOOL" || dtype == "U8"; }

std::string Tensor::shape_text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string TensorHandle::place() const {
  return flag + (flag.empty() ? "" : " ") + file->path() + ": tensor " + one_line(tensor->name);
}

TensorSpec split_spec(const std::string& spec) {
  const size_t colon = spec.rfind(':');
  // A path may itself contain a colon, so a file with the whole name comes first.
  std::error_code not_there;
  if (colon == std::string::npos || std::filesystem::exists(spec, not_there)) return {spec, ""};
  if (colon + 1 == spec.size()) throw Error(spec + ": there is no tensor name after the colon");
  return {spec.substr(0, colon), spec.substr(colon + 1)};
}

TensorHandle find_tensor(const std::string& spec, const TensorWish& wish) {
  const auto& [path, name] = split_spec(spec);
  auto file = std::make_shared<const SafetensorsFile>(path);
  const Tensor* chosen = file->find(name.empty() ? wish.conventional_name : name);
  if (!chosen && !name.empty()) {
    throw Error(path + ": has no tensor " + name + "; it has " + names_in(*file));
  }
  if (!chosen) chosen = file->find(std::string(wish.conventional_name) + ".weight");
  if (!chosen) {
    int candidates = 0;
    for (const Tensor& tensor : file->tensors()) {
      if (!belongs_to(tensor, wish.tensor_class) || !has_wished_rank(tensor, wish)) continue;
      chosen = &tensor;
      ++candidates;
    }
    if (candidates != 1) {
      throw Error(path + ": has no tensor " + wish.conventional_name + " and " +
                  (candidates == 0 ? "none" : "more than one") + " of " + description_of(wish.tensor_class) + " with " +
                  dimensions_of(wish) + "; it has " + names_in(*file) + "; name one with FILE:tensor");
    }
  }
  check_wish(*file, *chosen, wish);
  return {std::move(file), chosen};
}

DType natural_dtype(const Tensor& tensor) {
  if (tensor.dtype == "F64") return DType::kFloat64;
  if (tensor.dtype == "F16") return DType::kFloat16;
  return tensor.dtype == "BF16" ? DType::kBFloat16 : DType::kFloat32;
}

const char* spelling_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "F64";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    default:
      break;
  }
  return "F32";
}

bool usable_in_place(const Tensor& tensor, DType dtype) {
  return natural_dtype(tensor) == dtype && reinterpret_cast<uintptr_t>(tensor.data) % size_of(dtype) == 0;
}

void convert_floats(const Tensor& tensor, DType dtype, void* out) {
  const int64_t n = tensor.elements();
  with_type(natural_dtype(tensor), [&]<class From>(From) {
    with_type(dtype, [&]<class To>(To) {
#pragma omp parallel for schedule(static)
      for (int64_t i = 0; i < n; ++i) {
        From value;  // may be misaligned in the file
        std::memcpy(&value, tensor.data + static_cast<size_t>(i) * sizeof(From), sizeof(From));
        static_cast<To*>(out)[i] = converted<To>(value);
      }
    });
  });
}

std::vector<uint8_t> read_flags(const Tensor& tensor) {
  std::vector<uint8_t> values(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::to_integer<uint8_t>(tensor.data[i]);
  return values;
}

std::vector<int64_t> read_integers(const Tensor& tensor) {
  std::vector<int64_t> values(static_cast<size_t>(tensor.elements()));
  if (values.empty()) return values;
  if (tensor.dtype == "I64") {
    std::memcpy(values.data(), tensor.data, tensor.bytes);
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    int32_t value;
    std::memcpy(&value, tensor.data + i * sizeof(value), sizeof(value));
    values[i] = value;
  }
  return values;
}

bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};  // quiet: it stays a NaN
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

float16 to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (value != value) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 the spacing is 2^-24, as for a float in [0.5, 1): the addition rounds to it.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = std::min((magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13, 0x7c00u);
  }
  return {static_cast<uint16_t>(sign | half)};
}

// IEEE binary16 to float32, exact.
float to_float(float16 value) {
  const uint32_t half = value.bits;
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero and subnormals
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1f ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | mantissa << 13);
}

float to_float(bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

}  // namespace logitless::io
