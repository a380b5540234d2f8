// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <nanobind/stl/string.h>

#include <sstream>
#include <string_view>

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

// A type of a module that is loaded, or null. Modules and their types live as long as the process.
PyTypeObject* loaded_type(const char* module, const char* type) {
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  if (!found || !nb::hasattr(found, type)) return nullptr;
  return reinterpret_cast<PyTypeObject*>(nb::object(nb::handle(found).attr(type)).release().ptr());
}

bool is_a(nb::handle object, PyTypeObject* type) {
  return type && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.type().ptr()), type);
}

// Frameworks whose arrays never change, though DLPack hands their memory out as if they could.
bool is_immutable(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  std::string name;
  if (!nb::try_cast(module, name)) return false;
  name = name.substr(0, name.find('.'));
  return name == "jaxlib" || name == "jax" || name == "tensorflow";
}

}  // namespace

// What neither DLPack nor the buffer protocol says of an array.
void Arrays::check_framework(nb::handle object, const char* name, bool writable) {
  static PyTypeObject* const ndarray =
      reinterpret_cast<PyTypeObject*>(nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
  if (reinterpret_cast<PyTypeObject*>(object.type().ptr()) == ndarray) return;
  static PyTypeObject* tensor = nullptr;
  if (!tensor) tensor = loaded_type("torch", "Tensor");
  if (is_a(object, tensor)) {
    if (nb::cast<bool>(object.attr("is_neg")())) {
      refuse(name, " has PyTorch's negative bit set, its memory holds other values: give ", name, ".resolve_neg()");
    }
    if (writable) written_.push_back(nb::borrow(object));
  } else if (is_a(object, ndarray)) {
    if (nb::cast<bool>(nb::module_::import_("numpy.ma").attr("is_masked")(object))) {
      refuse(name, " is a masked array with masked elements, which would count: give ", name, ".filled(value)");
    }
  } else if (writable && is_immutable(object)) {
    refuse(name, " is an array of ", nb::str(object.type().attr("__module__")).c_str(),
           ", which must not change: an output must be writable, such as NumPy's or PyTorch's");
  }
}

void Arrays::tell_written() const {
  if (written_.empty()) return;
  static const nb::handle raise_version =
      nb::object(nb::module_::import_("torch.autograd.graph").attr("increment_version")).release();
  nb::list tensors;
  for (const nb::object& tensor : written_) tensors.append(tensor);
  raise_version(tensors);
}

nb::ndarray<nb::ro>& Arrays::keep(nb::handle object, const char* name, bool writable) {
  check_framework(object, name, writable);
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
        "%s is a %s: it must be an array%s that speaks DLPack or the buffer protocol, in the memory of the CPU", name,
        type.c_str(), writable ? " that may be written, and" : "");
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

[[noreturn]] void refuse_strides(const Array& array, const char* name) {
  std::string strides;
  for (size_t i = 0; i < array.axes(); ++i) strides += (i ? ", " : "") + std::to_string(array.stride(i));
  refuse(name, " has strides [", strides, "]: the elements of a row must follow one another; make it contiguous");
}

// The strides of rows and sequences go to the library as they are, which checks them.
template <class View>
View matrix_of(const Array& array, const char* name, bool* transposed, bool prefer_transposed = false) {
  if (array.axes() != 2) refuse(name, " has shape ", shape_of(array.view), ": it must have 2 axes");
  const bool straight = array.follows(1) && !(prefer_transposed && array.follows(0));
  if (!straight && !(transposed && array.follows(0))) refuse_strides(array, name);
  if (transposed) *transposed = !straight;
  const size_t row = straight ? 0 : 1, col = 1 - row;
  return View(array.data, array.dtype, array.size(row), array.size(col), array.stride(row));
}

// Finds rows and sequences of [N, C] or [B, T, C].
struct Batched {
  int64_t batch = 1, time = 0, cols = 0, row_stride = 0;
  std::optional<int64_t> batch_stride;
};

Batched batched(const Array& array, const char* name) {
  if (array.axes() != 2 && array.axes() != 3) {
    refuse(name, " has shape ", shape_of(array.view), ": it must have 2 or 3 axes");
  }
  const size_t last = array.axes() - 1;
  if (!array.follows(last)) refuse_strides(array, name);
  Batched out;
  out.time = array.size(last - 1);
  out.cols = array.size(last);
  out.row_stride = array.stride(last - 1);
  if (last == 2) out.batch = array.size(0);
  if (out.batch > 1) out.batch_stride = array.stride(0);
  return out;
}

template <class View>
View logits_of(const Array& array, const char* name) {
  const Batched b = batched(array, name);
  return View(array.data, array.dtype, b.batch, b.time, b.cols, b.batch_stride, b.row_stride);
}

}  // namespace

ConstMatrix Arrays::matrix(nb::handle object, const char* name, bool* transposed) {
  return matrix_of<ConstMatrix>(floating(object, name), name, transposed);
}

PackedMatrix Arrays::packed(nb::handle object, const char* name, Packing packing, nb::handle scales,
                            const char* scales_name) {
  const bool integers = packing == Packing::kInt8;
  const nb::ndarray<nb::ro>& rows = keep(object, name, false);
  using Code = nb::dlpack::dtype_code;
  if (!is(rows.dtype(), integers ? Code::Int : Code::UInt, 8)) {
    refuse(name, " is ", dtype_name(rows.dtype()), ": with packing = '", name_of(packing), "' it must be ",
           integers ? "int8" : "uint8, the bytes of its rows");
  }
  if (rows.ndim() != 2) refuse(name, " has shape ", shape_of(rows), ": it must have 2 axes");
  if (rows.shape(1) > 1 && rows.stride(1) != 1 && rows.size() > 0) {
    refuse(name, " has the stride ", rows.stride(1),
           ": the bytes of a row must follow one another; make it contiguous");
  }
  const PackedBlock block = block_of(packing);
  const auto bytes = static_cast<int64_t>(rows.shape(1));
  if (bytes % block.bytes != 0) {
    refuse(name, " has rows of ", bytes, " bytes, which is no multiple of ", block.bytes, ", the block of ",
           name_of(packing));
  }
  PackedMatrix out;
  out.data = rows.data();
  out.packing = packing;
  out.rows = static_cast<int64_t>(rows.shape(0));
  out.cols = bytes / block.bytes * block.numbers;
  if (rows.shape(0) > 1) out.row_bytes = rows.stride(0);
  if (!scales) return out;
  const Array of_groups = floating(scales, scales_name);
  const size_t axes = of_groups.axes();
  if (of_groups.dtype != DType::kFloat32) refuse(scales_name, " is ", name_of(of_groups.dtype), ": it must be float32");
  if (axes < 1 || axes > 2 || of_groups.size(0) != out.rows) {
    refuse(scales_name, " has shape ", shape_of(of_groups.view),
           ": it must have one or several numbers for each of the ", out.rows, " rows of ", name);
  }
  const int64_t groups = axes == 2 ? of_groups.size(1) : 1;
  const bool follow = of_groups.follows(axes - 1) && (axes == 1 || out.rows < 2 || of_groups.stride(0) == groups);
  if (!follow) refuse(scales_name, " has strides: make it contiguous");
  if (groups == 0 || out.cols % groups != 0) {
    refuse(scales_name, " has ", groups, " numbers a row, which is no divisor of ", out.cols,
           ", the numbers of a row of ", name);
  }
  out.scales = static_cast<const float*>(of_groups.data);
  out.group = out.cols / groups;
  return out;
}

Matrix Arrays::output(nb::handle object, const char* name, bool transposed) {
  const Array array = floating(object, name, true);
  if (!array.follows(transposed ? 0 : 1) && array.follows(transposed ? 1 : 0)) {
    refuse(name, " and weight stand in memory the other way round: give both alike");
  }
  bool also = transposed;
  return matrix_of<Matrix>(array, name, transposed ? &also : nullptr, transposed);
}

ConstVector Arrays::vector(nb::handle object, const char* name) {
  const Array array = floating(object, name);
  if (array.axes() != 1) refuse(name, " has shape ", shape_of(array.view), ": it must have 1 axis");
  if (!array.follows(0)) refuse_strides(array, name);
  return ConstVector(array.data, array.dtype, array.size(0));
}

Vector Arrays::vector_output(nb::handle object, const char* name) {
  const Array array = floating(object, name, true);
  if (array.axes() != 1) refuse(name, " has shape ", shape_of(array.view), ": it must have 1 axis");
  if (!array.follows(0)) refuse_strides(array, name);
  return Vector(array.data, array.dtype, array.size(0));
}

HiddenStates Arrays::hidden(nb::handle object, const char* name) {
  const Array array = floating(object, name);
  const Batched b = batched(array, name);
  return HiddenStates(array.data, array.dtype, b.batch, b.time, b.cols, b.batch_stride, b.row_stride);
}

Matrix Arrays::d_hidden(nb::handle object, const char* name, std::optional<int64_t>& batch_stride) {
  const Array array = floating(object, name, true);
  const Batched b = batched(array, name);
  batch_stride = b.batch_stride;
  return Matrix(array.data, array.dtype, b.batch * b.time, b.cols, b.row_stride);
}

Logits Arrays::logits(nb::handle object, const char* name) { return logits_of<Logits>(floating(object, name), name); }

LogitsGradient Arrays::d_logits(nb::handle object, const char* name) {
  return logits_of<LogitsGradient>(floating(object, name, true), name);
}

Targets Arrays::targets(nb::handle object, const char* name) {
  const nb::ndarray<nb::ro>& array = keep(object, name, false);
  using Code = nb::dlpack::dtype_code;
  const bool is32 = is(array.dtype(), Code::Int, 32);
  if (!is32 && !is(array.dtype(), Code::Int, 64)) {
    refuse(name, " is ", dtype_name(array.dtype()), ": token ids are int64 or int32");
  }
  if (array.ndim() != 1 && array.ndim() != 2) {
    refuse(name, " has shape ", shape_of(array), ": it must have 1 or 2 axes");
  }
  const size_t last = array.ndim() - 1;
  const auto time = static_cast<int64_t>(array.shape(last));
  const bool batched = last == 1;
  const int64_t batch = batched ? static_cast<int64_t>(array.shape(0)) : 1;
  const std::optional<int64_t> batch_stride = batched ? std::optional(array.stride(0)) : std::nullopt;
  const int64_t stride = array.stride(last);
  Targets out = is32 ? Targets(static_cast<const int32_t*>(array.data()), batch, time, batch_stride, stride)
                     : Targets(static_cast<const int64_t*>(array.data()), batch, time, batch_stride, stride);
  if (!batched) out.time = 0;  // one sequence, or as many as hidden has
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
