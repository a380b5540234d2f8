// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Views of Python arrays, through DLPack or the buffer protocol. Floating-point arrays are never copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "logitless/logits.h"

namespace logitless::python {

namespace nb = nanobind;

/// Returns the name of an object's type with its article, such as "an int".
std::string type_of(nb::handle object);

/// An array that a call reads or writes. Keeps the Python object alive.
struct Array {
  nb::ndarray<nb::ro> view;
  void* data = nullptr;           // never null, even if the array has no elements
  DType dtype = DType::kFloat32;  // only set for floating-point arrays

  int64_t size(size_t axis) const { return static_cast<int64_t>(view.shape(axis)); }
  int64_t stride(size_t axis) const { return view.stride(axis); }
  size_t axes() const { return view.ndim(); }
  /// Tells whether the elements along the axis are adjacent in memory. True if the axis has at most one.
  bool follows(size_t axis) const { return stride(axis) == 1 || view.shape(axis) <= 1 || view.size() == 0; }
};

/// How many axes an array may have.
struct Axes {
  size_t least, most;
};
inline constexpr Axes kVector = {1, 1}, kMatrix = {2, 2};
inline constexpr Axes kTokens = {1, 2};  // [N] or [B, T]
inline constexpr Axes kRows = {2, 3};    // [N, C] or [B, T, C]

/// Imports the arrays of one call as views, and keeps them alive. `name` is the argument's name for messages.
/// An object that is not an array is a TypeError; an array of the wrong type or shape is a ValueError. The
/// data pointer of a view is never null, even without elements, so given() is true for it.
class Arrays {
 public:
  /// A floating-point array whose last axis is contiguous; with `either`, the first axis may be instead.
  Tensor tensor(nb::handle object, const char* name, Axes axes, bool writable = false, bool either = false);
  /// Reads a packed matrix into out.weight, out.scales and out.group: uint8 [rows, bytes], or int8 [rows,
  /// cols] for packing int8. Packings int8 and nf4 have float32 scales, [rows] or [rows, groups].
  void packed(nb::handle object, const char* name, nb::handle scales, const char* scales_name, LmHead& out);
  /// Token ids, [N] or [B, T]. Integers other than int32 and int64 are copied.
  ConstTensor targets(nb::handle object, const char* name);
  /// Token ids of sets: [E] with offsets, else [N, K]. Copied as in targets().
  ConstTensor ids(nb::handle object, const char* name, bool with_offsets);
  /// Floating-point values, one per id: of the ids' shape, or flat.
  ConstTensor entries(nb::handle object, const char* name);
  /// The shape of the last ids(); empty before that.
  const std::vector<int64_t>& ids_shape() const { return ids_shape_; }

  /// Returns token ids of any number of axes as a NumPy copy.
  nb::object token_ids(nb::handle object, const char* name);
  /// A vector. For float32 and float64 the array must have that type and be contiguous. For int64 it may have
  /// any integer type, and is copied unless it is contiguous int64. For uint8 the result is a copy of flags,
  /// [N] or [B, T]: bools, or integers, float32 or float64 that are 0 or 1.
  template <class T>
  std::span<const T> span(nb::handle object, const char* name);

  /// Records that an argument was given without elements, because the library treats it as not given. check()
  /// allows it in a call without tokens, or if the array has one empty row per token (`rows`).
  void mark_empty(const char* name, int64_t rows = -1) { empty_.emplace_back(name, rows); }
  /// Throws for marked arguments that are not allowed with this number of tokens. If an argument is not
  /// `needed`, the message advises to leave it out. Also throws for flags [B, T] if the logits have other
  /// axes: the library gets a flat copy and cannot check that.
  void check(const Logits& logits, std::span<const char* const> needed) const;

  /// Raises the versions of the PyTorch tensors that the call has written, so that autograd notices if it had
  /// saved one of them.
  void report_writes() const;

 private:
  // Every array is imported here. The result has an allowed number of axes, is in CPU memory, and has
  // non-null data.
  Array keep(nb::handle object, const char* name, Axes axes, bool writable = false);
  // Returns the object that nanobind imports, after the checks that neither DLPack nor the buffer protocol
  // can make.
  nb::object importable(nb::handle object, const char* name, bool writable);
  Array floating(nb::handle object, const char* name, Axes axes, bool writable = false);
  ConstTensor ids_of(const Array& array, const char* name);
  std::span<const int64_t> copy_integers(const Array& array, const char* name);
  std::vector<nb::ndarray<nb::ro>> kept_alive_;
  std::vector<std::vector<int64_t>> integers_;  // copies
  std::vector<std::vector<uint8_t>> flags_;
  std::vector<std::pair<std::string, int64_t>> empty_;
  std::vector<std::pair<std::string, std::array<int64_t, 2>>> batches_;  // shapes of [B, T] flags
  std::vector<int64_t> ids_shape_;
  std::vector<nb::object> written_;  // tensors of PyTorch
};

/// Returns the object of the first make(). It is never freed. make() may release Python's lock: if the object
/// were a static variable, a second thread could wait for its guard while it holds the lock, and neither would
/// continue. Here the second thread calls make(), too.
template <class Make>
nb::handle made_once(const Make& make) {
  static PyObject* kept = nullptr;  // one per call of made_once in the source
  if (!kept) {
    nb::object made = make();
    if (!kept) kept = made.release().ptr();
  }
  return kept;
}

/// Returns a new uninitialised NumPy vector; `dtype` is NumPy's.
nb::object new_array(size_t size, nb::handle dtype);
/// Returns the data pointer of a writable NumPy array.
void* elements_of(const nb::object& array);

/// A new uninitialised NumPy vector, and a pointer to its elements.
template <class T>
struct Column {
  nb::object array;
  T* data;

  explicit Column(size_t size) : array(new_array(size, dtype())), data(static_cast<T*>(elements_of(array))) {}

 private:
  static nb::handle dtype() {
    constexpr char kKind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
    return made_once([] { return nb::module_::import_("numpy").attr("dtype")(kKind + std::to_string(sizeof(T))); });
  }
};

/// Copies a vector or a span into a NumPy array. Doubles are stored as `type`, float32 or float64.
template <class Values>
nb::object to_numpy(const Values& values, DType type = DType::kFloat64) {
  using T = typename Values::value_type;
  const auto copy = [&]<class To>(Column<To> out) {
    std::transform(values.begin(), values.end(), out.data, [](T value) { return static_cast<To>(value); });
    return std::move(out.array);
  };
  if constexpr (std::is_same_v<T, double>) {
    if (type == DType::kFloat32) return copy(Column<float>(values.size()));
  }
  return copy(Column<T>(values.size()));
}

}  // namespace logitless::python
