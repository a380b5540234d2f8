// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/tensors.h"
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
  return code == nb::dlpack::dtype_code::Bool ? kind : kind + std::to_string(type.bits);
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

// Returns the type if the module is loaded, else null. Modules and their types live as long as the process.
PyTypeObject* loaded_type(const char* module, const char* type) {
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  if (!found || !nb::hasattr(found, type)) return nullptr;
  return reinterpret_cast<PyTypeObject*>(nb::object(nb::handle(found).attr(type)).release().ptr());
}

bool is_a(nb::handle object, PyTypeObject* type) {
  return type && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.type().ptr()), type);
}

// True for arrays of frameworks in which arrays are immutable. DLPack exports their memory as writable.
bool is_immutable(nb::handle object) {
  const nb::object module = nb::getattr(object.type(), "__module__", nb::none());
  std::string name;
  if (!nb::try_cast(module, name)) return false;
  name = name.substr(0, name.find('.'));
  return name == "jaxlib" || name == "jax" || name == "tensorflow";
}

// PyTorch's __dlpack__() is written in Python and takes 3 µs; to_dlpack() takes 0.3 µs. A tensor that
// to_dlpack() refuses, such as a sparse one, goes through the general import, which reports the error.
nb::object exported(nb::handle tensor) {
  const nb::handle to_dlpack = made_once([] { return nb::module_::import_("torch.utils.dlpack").attr("to_dlpack"); });
  try {
    return to_dlpack(tensor);
  } catch (nb::python_error&) {
    return nb::borrow(tensor);
  }
}

}  // namespace

std::string type_of(nb::handle object) {
  const std::string name = nb::str(object.type().attr("__name__")).c_str();
  const bool has_vowel = std::string_view("AEIOUaeiou").find(name.front()) != std::string_view::npos;
  return (has_vowel || name == "ndarray" ? "an " : "a ") + name;
}

nb::object Arrays::importable(nb::handle object, const char* name, bool writable) {
  auto* const ndarray =
      reinterpret_cast<PyTypeObject*>(made_once([] { return nb::module_::import_("numpy").attr("ndarray"); }).ptr());
  const PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(object.type().ptr());
  if (type == ndarray) return nb::borrow(object);
  static PyTypeObject* tensor = nullptr;
  if (!tensor) tensor = loaded_type("torch", "Tensor");
  if (is_a(object, tensor)) {
    if (nb::cast<bool>(object.attr("is_neg")())) {
      refuse(name, " has PyTorch's negative bit set, its memory holds other values: give ", name, ".resolve_neg()");
    }
    if (writable) written_.push_back(nb::borrow(object));
    if (type == tensor) return exported(object);
  } else if (is_a(object, ndarray)) {
    if (nb::cast<bool>(nb::module_::import_("numpy.ma").attr("is_masked")(object))) {
      refuse(name, " is a masked array with masked elements, which would count: give ", name, ".filled(value)");
    }
  } else if (writable && is_immutable(object)) {
    refuse(name, " is an array of ", nb::str(object.type().attr("__module__")).c_str(),
           ", which must not change: an output must be writable, such as NumPy's or PyTorch's");
  }
  return nb::borrow(object);
}

void Arrays::report_writes() const {
  if (written_.empty()) return;
  const nb::handle raise_version =
      made_once([] { return nb::module_::import_("torch.autograd.graph").attr("increment_version"); });
  nb::list tensors;
  for (const nb::object& tensor : written_) tensors.append(tensor);
  raise_version(tensors);
}

namespace {

// Returns the exporter's message, if it has one, as " (DLPack only supports native byte order)".
std::string reason_of(nb::handle object) {
  if (PyType_Check(object.ptr()) || !nb::hasattr(object, "__dlpack__")) return "";
  try {
    object.attr("__dlpack__")();
  } catch (nb::python_error& error) {
    return std::string(" (") + nb::str(error.value()).c_str() + ")";
  }
  return "";
}

[[noreturn]] void refuse_axes(const std::string& shape, const char* name, Axes axes) {
  const std::string least = std::to_string(axes.least), most = std::to_string(axes.most);
  refuse(name, " has shape ", shape, ": it must have ", axes.least == axes.most ? least : least + " or " + most,
         axes.most == 1 ? " axis" : " axes");
}

}  // namespace

Array Arrays::keep(nb::handle object, const char* name, Axes axes, bool writable) {
  const nb::object source = importable(object, name, writable);
  Array out;
  nb::ndarray<nb::ro>& array = out.view;
  if (writable) {
    nb::ndarray<> written;
    if (nb::try_cast(source, written)) array = nb::ndarray<nb::ro>(written);
  } else {
    nb::try_cast(source, array);
  }
  if (!array.is_valid()) {
    PyErr_Clear();
    const std::string type = type_of(object), reason = reason_of(object);
    nb::raise_type_error("%s is %s: it must be a%s array in CPU memory that supports DLPack or the buffer protocol%s",
                         name, type.c_str(), writable ? " writable" : "n", reason.c_str());
  }
  if (array.device_type() != nb::device::cpu::value) {
    refuse(name, " is on another device (DLPack's type ", array.device_type(), "): it must be in the CPU's memory");
  }
  if (array.ndim() < axes.least || array.ndim() > axes.most) refuse_axes(shape_of(array), name, axes);
  alignas(16) static std::byte nowhere[16];
  out.data = array.size() == 0 ? nowhere : const_cast<void*>(array.data());
  if (!out.data) refuse(name, ".data is null, though its shape is ", shape_of(array), ": it has no memory");
  kept_alive_.push_back(array);
  return out;
}

Array Arrays::floating(nb::handle object, const char* name, Axes axes, bool writable) {
  Array out = keep(object, name, axes, writable);
  out.dtype = dtype_of(out.view, name);
  return out;
}

void Arrays::check(const Logits& logits, std::span<const char* const> needed) const {
  const ConstTensor& rows_of = logits.is_given() ? logits.finished : logits.hidden;
  const int64_t tokens = rows_of.rows();
  for (const auto& [name, rows] : empty_) {
    if (tokens == 0 || rows == tokens) continue;
    const bool is_needed =
        std::any_of(needed.begin(), needed.end(), [&](const char* one) { return one && one == name; });
    refuse(name, " has no elements, and the call has ", tokens, " tokens",
           is_needed ? "" : ": leave it out if it is not meant");
  }
  for (const auto& [name, sizes] : batches_) core::check_batch(std::string_view(name), sizes, logits);
}

namespace {

[[noreturn]] void refuse_strides(const Array& array, const char* name) {
  std::string strides;
  for (size_t i = 0; i < array.axes(); ++i) strides += (i ? ", " : "") + std::to_string(array.stride(i));
  refuse(name, " has strides [", strides, "]: the elements of a row must follow one another; make it contiguous");
}

// Strides of rows and sequences are copied unchecked: the library checks them.
Tensor tensor_of(const Array& array) {
  Tensor out;
  out.data = array.data;
  out.dtype = array.dtype;
  out.axes = static_cast<int>(array.axes());
  for (size_t i = 0; i < array.axes(); ++i) {
    out.sizes[i] = array.size(i);
    out.strides[i] = array.stride(i);
  }
  return out;
}

}  // namespace

Tensor Arrays::tensor(nb::handle object, const char* name, Axes axes, bool writable, bool either) {
  const Array array = floating(object, name, axes, writable);
  if (!array.follows(array.axes() - 1) && !(either && array.follows(0))) refuse_strides(array, name);
  return tensor_of(array);
}

void Arrays::packed(nb::handle object, const char* name, nb::handle scales, const char* scales_name, LmHead& out) {
  const Packing packing = out.packing.value();
  const bool integers = packing == Packing::kInt8;
  const Array kept = keep(object, name, kMatrix);
  const nb::ndarray<nb::ro>& rows = kept.view;
  using Code = nb::dlpack::dtype_code;
  if (!is(rows.dtype(), integers ? Code::Int : Code::UInt, 8)) {
    refuse(name, " is ", dtype_name(rows.dtype()), ": with packing = '", name_of(packing), "' it must be ",
           integers ? "int8" : "uint8, the bytes of its rows");
  }
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
  const int64_t entries = kept.size(0), cols = bytes / block.bytes * block.numbers;
  out.weight = tensor_of(kept);
  out.weight.dtype = DType::kUInt8;
  if (!scales) return;
  const Array of_groups = floating(scales, scales_name, {1, 2});
  const size_t axes = of_groups.axes();
  if (of_groups.dtype != DType::kFloat32) refuse(scales_name, " is ", name_of(of_groups.dtype), ": it must be float32");
  if (of_groups.size(0) != entries) {
    refuse(scales_name, " has shape ", shape_of(of_groups.view),
           ": it must have one or several numbers for each of the ", entries, " rows of ", name);
  }
  const int64_t groups = axes == 2 ? of_groups.size(1) : 1;
  const bool follow = of_groups.follows(axes - 1) && (axes == 1 || entries < 2 || of_groups.stride(0) == groups);
  if (!follow) refuse(scales_name, " has strides: make it contiguous");
  if (groups == 0 || cols % groups != 0) {
    refuse(scales_name, " has ", groups, " numbers per row: this must divide ", cols, ", the numbers in a row of ",
           name);
  }
  out.scales = tensor_of(of_groups);
  out.group = cols / groups;
}

namespace {

// Calls use(T()) for elements of type T and returns true. Returns false for float16, bfloat16 and complex.
template <class Use>
bool with_element(const nb::dlpack::dtype& type, const Use& use) {
  const auto one_of = [&]<class... T>(std::tuple<T...>) {
    return ((type == nb::dtype<T>() && (use(T()), true)) || ...);
  };
  if (type == nb::dtype<bool>()) return use(uint8_t()), true;  // a byte of anything but 0 is true
  return one_of(std::tuple<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, float, double>());
}

// Calls visit(value) for each element, row by row. Any strides and any alignment are allowed.
template <class T, class Visit>
void visit_elements(const Array& array, const Visit& visit, size_t axis = 0, int64_t offset = 0) {
  if (axis == array.axes()) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(array.data) + offset * static_cast<int64_t>(sizeof value),
                sizeof value);
    return visit(value);
  }
  for (int64_t i = 0; i < array.size(axis); ++i) {
    visit_elements<T>(array, visit, axis + 1, offset + i * array.stride(axis));
  }
}

// Tells whether the array is C-contiguous.
bool is_contiguous(const Array& array) {
  const size_t last = array.axes() - 1;
  return array.follows(last) &&
         (last == 0 || array.size(0) < 2 || array.view.size() == 0 || array.stride(0) == array.size(1));
}

bool is_integer(const nb::dlpack::dtype& type) {
  return type.lanes == 1 && (type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int) ||
                             type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt));
}

}  // namespace

std::span<const int64_t> Arrays::copy_integers(const Array& array, const char* name) {
  std::vector<int64_t>& out = integers_.emplace_back();
  out.reserve(array.view.size());
  const auto copy = [&]<class T>(T) {
    visit_elements<T>(array, [&](T value) {
      if (!std::in_range<int64_t>(static_cast<std::conditional_t<std::is_integral_v<T>, T, int64_t>>(value))) {
        refuse(name, " has ", value, ", which int64 does not hold");
      }
      out.push_back(static_cast<int64_t>(value));
    });
  };
  if (!is_integer(array.view.dtype()) || !with_element(array.view.dtype(), copy)) {
    refuse(name, " is ", dtype_name(array.view.dtype()), ": it must be integers");
  }
  return out;
}

nb::object Arrays::token_ids(nb::handle object, const char* name) {
  const Array array = keep(object, name, {1, 64});
  const std::span<const int64_t> ids = copy_integers(array, name);
  nb::list shape;
  for (size_t axis = 0; axis < array.axes(); ++axis) shape.append(array.size(axis));
  return to_numpy(ids).attr("reshape")(shape);
}

ConstTensor Arrays::targets(nb::handle object, const char* name) { return ids_of(keep(object, name, kTokens), name); }

ConstTensor Arrays::ids(nb::handle object, const char* name, bool with_offsets) {
  const Array array = keep(object, name, kTokens);
  if (array.view.size() == 0 && !with_offsets) mark_empty(name, array.axes() == 2 ? array.size(0) : -1);
  ids_shape_.assign(array.view.shape_ptr(), array.view.shape_ptr() + array.axes());
  return ids_of(array, name);
}

ConstTensor Arrays::ids_of(const Array& array, const char* name) {
  using Code = nb::dlpack::dtype_code;
  const bool is32 = is(array.view.dtype(), Code::Int, 32), is64 = is(array.view.dtype(), Code::Int, 64);
  ConstTensor out = tensor_of(array);
  out.dtype = is32 ? DType::kInt32 : DType::kInt64;
  if (is32 || is64) return out;
  out.data = copy_integers(array, name).data();
  out.strides = {out.axes == 2 ? out.sizes[1] : 1, 1, 0};
  return out;
}

ConstTensor Arrays::entries(nb::handle object, const char* name) {
  const Array array = floating(object, name, kTokens);
  if (array.axes() == 2 && !std::equal(ids_shape_.begin(), ids_shape_.end(), array.view.shape_ptr(),
                                       array.view.shape_ptr() + array.axes())) {
    refuse(name, " has shape ", shape_of(array.view), ": it must have the shape of ids, or 1 axis");
  }
  if (!is_contiguous(array)) refuse_strides(array, name);
  return ConstTensor(array.data, array.dtype, {static_cast<int64_t>(array.view.size())});
}

template <class T>
std::span<const T> Arrays::span(nb::handle object, const char* name) {
  constexpr bool kIsFlags = std::is_same_v<T, uint8_t>;
  const Array array = keep(object, name, kIsFlags ? kTokens : kVector);
  const nb::dlpack::dtype type = array.view.dtype();
  if constexpr (kIsFlags) {
    if (array.axes() == 2) batches_.push_back({name, {array.size(0), array.size(1)}});
    std::vector<uint8_t>& flags = flags_.emplace_back();
    flags.reserve(array.view.size());
    const bool is_bool = type == nb::dtype<bool>();
    const auto copy = [&]<class E>(E) {
      visit_elements<E>(array, [&](E value) {
        if (!is_bool && value != 0 && value != 1) refuse(name, " has ", +value, ": each must be 0 or 1, or a bool");
        flags.push_back(value != 0);
      });
    };
    if (!with_element(type, copy)) {
      refuse(name, " is ", dtype_name(type), ": it must be bool, or integers, float32 or float64 of 0 and 1");
    }
    return flags;
  } else {
    const bool has_type = type == nb::dtype<T>();
    if constexpr (std::is_same_v<T, int64_t>) {
      if (!has_type || !array.follows(0)) return copy_integers(array, name);
    }
    if (!has_type) refuse(name, " is ", dtype_name(type), ": it must be ", dtype_name(nb::dtype<T>()));
    if (!array.follows(0)) refuse_strides(array, name);
    return {static_cast<const T*>(array.data), array.view.size()};
  }
}

nb::object new_array(size_t size, nb::handle dtype) {
  const nb::handle empty = made_once([] { return nb::module_::import_("numpy").attr("empty"); });
  return empty(size, dtype);
}

void* elements_of(const nb::object& array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
  PyBuffer_Release(&view);
  return view.buf;  // valid as long as the array lives
}

template std::span<const float> Arrays::span(nb::handle, const char*);
template std::span<const double> Arrays::span(nb::handle, const char*);
template std::span<const int64_t> Arrays::span(nb::handle, const char*);
template std::span<const uint8_t> Arrays::span(nb::handle, const char*);

}  // namespace logitless::python
