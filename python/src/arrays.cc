// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <sstream>

#include "logitless/error.h"

namespace logitless::python {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw InvalidInput(message.str());
}

std::string shape_of(const nb::ndarray<nb::ro>& array) {
  std::string out = "[";
  for (size_t i = 0; i < array.ndim(); ++i) out += (i ? ", " : "") + std::to_string(array.shape(i));
  return out + "]";
}

std::string dtype_name(const nb::dlpack::dtype& type) {
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  const char* kind = code == nb::dlpack::dtype_code::Int       ? "int"
                     : code == nb::dlpack::dtype_code::UInt    ? "uint"
                     : code == nb::dlpack::dtype_code::Float   ? "float"
                     : code == nb::dlpack::dtype_code::Bfloat  ? "bfloat"
                     : code == nb::dlpack::dtype_code::Complex ? "complex"
                     : code == nb::dlpack::dtype_code::Bool    ? "bool"
                                                               : "type";
  return kind + std::to_string(type.bits);
}

bool is(const nb::dlpack::dtype& type, nb::dlpack::dtype_code code, int bits) {
  return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1;
}

DType dtype_of(const nb::ndarray<nb::ro>& array, const char* name) {
  const nb::dlpack::dtype type = array.dtype();
  using Code = nb::dlpack::dtype_code;
  if (is(type, Code::Float, 32)) return DType::kFloat32;
  if (is(type, Code::Float, 64)) return DType::kFloat64;
  if (is(type, Code::Float, 16)) return DType::kFloat16;
  if (is(type, Code::Bfloat, 16)) return DType::kBFloat16;
  refuse(name, " is ", dtype_name(type), ": it must be float32, bfloat16, float16 or float64");
}

}  // namespace

nb::ndarray<nb::ro>& Arrays::keep(nb::handle object, const char* name, bool writable) {
  nb::ndarray<nb::ro> array;
  if (writable) {
    nb::ndarray<> written;
    if (nb::try_cast(object, written)) array = nb::ndarray<nb::ro>(written);
  } else {
    nb::try_cast(object, array);
  }
  if (!array.is_valid()) {
    PyErr_Clear();
    const std::string type = nb::str(object.type().attr("__name__")).c_str();
    nb::raise_type_error(
        "%s is a %s: it must be an array%s that speaks DLPack or the buffer protocol, in the memory of "
        "the CPU, and one that requires no gradient",
        name, type.c_str(), writable ? " that may be written, and" : "");
  }
  if (array.device_type() != nb::device::cpu::value) {
    refuse(name, " is on another device (DLPack's type ", array.device_type(), "): it must be in the CPU's memory");
  }
  return kept_.emplace_back(std::move(array));
}

Array Arrays::floating(nb::handle object, const char* name, bool writable) {
  Array out;
  out.view = keep(object, name, writable);
  out.dtype = dtype_of(out.view, name);
  out.data = const_cast<void*>(out.view.data());
  return out;
}

namespace {

// Axes of one element have any stride.
bool follows(const Array& array, size_t axis) { return array.size(axis) <= 1 || array.stride(axis) == 1; }

int64_t row_stride(const Array& array, size_t axis, int64_t cols) {
  return array.size(axis) <= 1 ? std::max<int64_t>(cols, 1) : array.stride(axis);
}

[[noreturn]] void refuse_strides(const Array& array, const char* name) {
  std::string strides;
  for (size_t i = 0; i < array.axes(); ++i) strides += (i ? ", " : "") + std::to_string(array.stride(i));
  refuse(name, " has strides [", strides, "]: the elements of a row must follow one another; make it contiguous");
}

template <class View>
View matrix_of(const Array& array, const char* name, bool* transposed) {
  if (array.axes() != 2) refuse(name, " has shape ", shape_of(array.view), ": it must have 2 axes");
  const int64_t rows = array.size(0), cols = array.size(1);
  if (transposed) *transposed = false;
  if (follows(array, 1)) return View(array.data, array.dtype, rows, cols, row_stride(array, 0, cols));
  if (!transposed || !follows(array, 0)) refuse_strides(array, name);
  *transposed = true;
  return View(array.data, array.dtype, cols, rows, row_stride(array, 1, rows));
}

// Finds rows and sequences of [N, C] or [B, T, C].
struct Batched {
  int64_t batch = 1, time = 0, cols = 0, row_stride = 0;
  std::optional<int64_t> batch_stride;
  bool has_batch = false;
};

Batched batched(const Array& array, const char* name) {
  if (array.axes() != 2 && array.axes() != 3) {
    refuse(name, " has shape ", shape_of(array.view), ": it must have 2 or 3 axes");
  }
  const size_t last = array.axes() - 1;
  if (!follows(array, last)) refuse_strides(array, name);
  Batched out;
  out.has_batch = last == 2;
  out.batch = out.has_batch ? array.size(0) : 1;
  out.time = array.size(last - 1);
  out.cols = array.size(last);
  out.row_stride = row_stride(array, last - 1, out.cols);
  if (out.has_batch && out.batch > 1) out.batch_stride = array.stride(0);
  return out;
}

}  // namespace

ConstMatrix Arrays::matrix(nb::handle object, const char* name, bool* transposed) {
  return matrix_of<ConstMatrix>(floating(object, name), name, transposed);
}

Matrix Arrays::output(nb::handle object, const char* name, bool* transposed) {
  return matrix_of<Matrix>(floating(object, name, true), name, transposed);
}

ConstVector Arrays::vector(nb::handle object, const char* name) {
  const Array array = floating(object, name);
  if (array.axes() != 1) refuse(name, " has shape ", shape_of(array.view), ": it must have 1 axis");
  if (!follows(array, 0)) refuse_strides(array, name);
  return ConstVector(array.data, array.dtype, array.size(0));
}

Vector Arrays::vector_output(nb::handle object, const char* name) {
  const Array array = floating(object, name, true);
  if (array.axes() != 1) refuse(name, " has shape ", shape_of(array.view), ": it must have 1 axis");
  if (!follows(array, 0)) refuse_strides(array, name);
  return Vector(array.data, array.dtype, array.size(0));
}

HiddenStates Arrays::hidden(nb::handle object, const char* name) {
  const Array array = floating(object, name);
  const Batched b = batched(array, name);
  HiddenStates out(ConstMatrix(array.data, array.dtype, b.batch * b.time, b.cols, b.row_stride), b.batch);
  out.batch_stride = b.batch_stride;
  return out;
}

Matrix Arrays::d_hidden(nb::handle object, const char* name, std::optional<int64_t>& batch_stride) {
  const Array array = floating(object, name, true);
  const Batched b = batched(array, name);
  batch_stride = b.batch_stride;
  return Matrix(array.data, array.dtype, b.batch * b.time, b.cols, b.row_stride);
}

Logits Arrays::logits(nb::handle object, const char* name) {
  const Array array = floating(object, name);
  const Batched b = batched(array, name);
  return Logits(array.data, array.dtype, b.batch, b.time, b.cols, b.batch_stride, b.row_stride);
}

LogitsGradient Arrays::d_logits(nb::handle object, const char* name) {
  const Array array = floating(object, name, true);
  const Batched b = batched(array, name);
  return LogitsGradient(array.data, array.dtype, b.batch, b.time, b.cols, b.batch_stride, b.row_stride);
}

Targets Arrays::targets(nb::handle object, const char* name) {
  const nb::ndarray<nb::ro>& array = keep(object, name, false);
  using Code = nb::dlpack::dtype_code;
  const bool is32 = is(array.dtype(), Code::Int, 32);
  if (!is32 && !is(array.dtype(), Code::Int, 64)) {
    refuse(name, " is ", dtype_name(array.dtype()), ": word ids are int64 or int32");
  }
  if (array.ndim() != 1 && array.ndim() != 2) {
    refuse(name, " has shape ", shape_of(array), ": it must have 1 or 2 axes");
  }
  const size_t last = array.ndim() - 1;
  Targets out;
  if (is32) {
    out.data32 = static_cast<const int32_t*>(array.data());
  } else {
    out.data64 = static_cast<const int64_t*>(array.data());
  }
  const auto time = static_cast<int64_t>(array.shape(last));
  out.stride = time > 1 ? array.stride(last) : 1;
  out.size = time;
  if (last == 1) {
    const auto batch = static_cast<int64_t>(array.shape(0));
    out.time = time;
    out.size = batch * time;
    out.batch_stride = batch > 1 ? array.stride(0) : time * out.stride;
  }
  return out;
}

template <class T>
std::span<const T> Arrays::span(nb::handle object, const char* name) {
  const nb::ndarray<nb::ro>& array = keep(object, name, false);
  if (!(array.dtype() == nb::dtype<T>())) {
    refuse(name, " is ", dtype_name(array.dtype()), ": it must be ", dtype_name(nb::dtype<T>()));
  }
  if (array.ndim() != 1 || (array.shape(0) > 1 && array.stride(0) != 1)) {
    refuse(name, " has shape ", shape_of(array), ": it must have 1 axis, and be contiguous");
  }
  return {static_cast<const T*>(array.data()), array.shape(0)};
}

template std::span<const float> Arrays::span(nb::handle, const char*);
template std::span<const double> Arrays::span(nb::handle, const char*);
template std::span<const int64_t> Arrays::span(nb::handle, const char*);
template std::span<const uint8_t> Arrays::span(nb::handle, const char*);

}  // namespace logitless::python
