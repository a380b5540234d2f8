// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Arrays of Python come and go through DLPack or the buffer protocol, and are never copied.
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

/// An array that a call reads or writes, which lives as long as this does.
struct Array {
  nb::ndarray<nb::ro> view;
  void* data = nullptr;           // never null, also without elements
  DType dtype = DType::kFloat32;  // of floating-point numbers

  int64_t size(size_t axis) const { return static_cast<int64_t>(view.shape(axis)); }
  int64_t stride(size_t axis) const { return view.stride(axis); }
  size_t axes() const { return view.ndim(); }
  /// Tells whether the elements along the axis follow one another, as far as there are any to step to.
  bool follows(size_t axis) const { return stride(axis) == 1 || view.shape(axis) <= 1 || view.size() == 0; }
};

/// How many axes an array may have.
struct Axes {
  size_t least, most;
};
inline constexpr Axes kVector = {1, 1}, kMatrix = {2, 2};
inline constexpr Axes kTokens = {1, 2};  // [N] or [B, T]
inline constexpr Axes kRows = {2, 3};    // the same with one axis more

/// Keeps the arrays of one call, and finds views of them. A name is the argument's, for messages: what is no
/// array is a TypeError, and one that does not fit a ValueError. A view of an array without elements has a data pointer
/// that is not null: the array is given.
class Arrays {
 public:
  /// Numbers of any floating-point type, whose rows are contiguous, or with `either` the elements of one of two axes.
  Tensor tensor(nb::handle object, const char* name, Axes axes, bool writable = false, bool either = false);
  /// The rows of a packed matrix: [rows, bytes] of uint8, or of int8 [rows, cols]. Packings int8 and nf4 have
  /// scales, [rows] or [rows, groups] of float32.
  void packed(nb::handle object, const char* name, nb::handle scales, const char* scales_name, LmHead& out);
  /// [N] or [B, T] of token ids; integers other than int32 and int64 are copied.
  ConstTensor targets(nb::handle object, const char* name);
  /// [E], or without offsets [N, K], of the same.
  ConstTensor ids(nb::handle object, const char* name, bool with_offsets);
  /// Numbers of any floating-point type for ids, of their shape or in one row.
  ConstTensor entries(nb::handle object, const char* name);
  /// The shape of ids; no axes where there are none.
  const std::vector<int64_t>& ids_shape() const { return ids_shape_; }

  /// A copy in NumPy of token ids of any axes.
  nb::object token_ids(nb::handle object, const char* name);
  /// Vectors. float32 and float64 must be of that type and contiguous. int64 may be any integers, which are copied
  /// where they are not contiguous int64. uint8 are copies of flags, [N] or [B, T]: bools, or integers, float32 or
  /// float64 that are 0 or 1.
  template <class T>
  std::span<const T> span(nb::handle object, const char* name);

  /// Marks an argument as given without elements, which the library reads as one that is not given. It is legal in a
  /// call without tokens, and where it has a row of no entries for each token.
  void mark_empty(const char* name, int64_t rows = -1) { empty_.emplace_back(name, rows); }
  /// Throws for marked arguments that are not legal for these logits' number of tokens (the message advises to leave
  /// out those that are not `needed`), and for flags of [B, T] that have other axes than theirs: the library gets a
  /// copy of one axis.
  void check(const Logits& logits, std::span<const char* const> needed) const;

  /// Tells the frameworks whose tensors a call has written: autograd then knows what it has saved of them as changed.
  void tell_written() const;

 private:
  // The one place where an array comes in. What it returns has these numbers of axes, is in memory of the CPU, and its
  // data is not null.
  Array keep(nb::handle object, const char* name, Axes axes, bool writable = false);
  // Returns what nanobind imports as the array, after checking what neither DLPack nor the buffer protocol says of it.
  nb::object importable(nb::handle object, const char* name, bool writable);
  Array floating(nb::handle object, const char* name, Axes axes, bool writable = false);
  ConstTensor ids_of(const Array& array, const char* name);
  std::span<const int64_t> copy_integers(const Array& array, const char* name);
  std::vector<nb::ndarray<nb::ro>> kept_;
  std::vector<std::vector<int64_t>> integers_;  // copies
  std::vector<std::vector<uint8_t>> flags_;
  std::vector<std::pair<std::string, int64_t>> empty_;
  std::vector<std::pair<std::string, std::array<int64_t, 2>>> batches_;  // the axes of flags
  std::vector<int64_t> ids_shape_;
  std::vector<nb::object> written_;  // tensors of PyTorch
};

/// Returns a new NumPy array of one axis, uninitialised; `dtype` is NumPy's.
nb::object new_array(size_t size, nb::handle dtype);
/// The elements of an array of NumPy that may be written.
void* elements_of(const nb::object& array);

/// A new NumPy array of one axis, and its uninitialised elements.
template <class T>
struct Column {
  nb::object array;
  T* data;

  explicit Column(size_t size) : array(new_array(size, dtype())), data(static_cast<T*>(elements_of(array))) {}

 private:
  static nb::handle dtype() {
    constexpr char kKind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
    static const nb::handle found =
        nb::object(nb::module_::import_("numpy").attr("dtype")(kKind + std::to_string(sizeof(T)))).release();
    return found;
  }
};

/// Returns a copy of a vector or a span as a NumPy array. Doubles become `type`, which is float32 or float64.
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
