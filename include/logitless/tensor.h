// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// The view that describes every tensor of a call, inputs and outputs.
///
///     view(p, {tokens, hidden_size})             row-major and dense
///     view(p, {batch, time, hidden_size}, {batch_stride, row_stride, 1})
///     transposed(view(p, {hidden_size, vocab_size}))         a head [V, H] that is stored as [H, V]
///     ConstTensor(data, dtype, {tokens, hidden_size})        of a type known at run time
///     std::vector<int64_t> targets;  CrossEntropy{.targets = targets}
///
/// A view does not own or copy memory. Creating one never throws; the call that uses it checks it (error.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <type_traits>

#include "logitless/dtype.h"

namespace logitless {

namespace detail {
/// Returns a * b, saturated to int64. No tensor is that large, so the call that uses it refuses it.
constexpr int64_t saturated_product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) == (b < 0) ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}
}  // namespace detail

/// A view with up to three axes. Element (i, j, k) is data[i * strides[0] + j * strides[1] + k * strides[2]];
/// strides are in elements. The stride of an axis of size 1 may be anything.
template <class Void>
struct BasicTensor {
  Void* data = nullptr;                 ///< element (0, 0, 0)
  DType dtype = DType::kFloat32;        ///< of the elements
  int axes = 0;                         ///< number of axes; 0: absent
  std::array<int64_t, 3> sizes = {};    ///< of the axes
  std::array<int64_t, 3> strides = {};  ///< elements from one index of an axis to the next

  BasicTensor() = default;
  /// A dense row-major tensor.
  template <size_t A>
  requires(A <= 3) BasicTensor(Void* data_, DType dtype_, const int64_t (&sizes_)[A])
      : data(data_), dtype(dtype_), axes(A) {
    std::copy(sizes_, sizes_ + A, sizes.begin());
    int64_t step = 1;
    for (size_t i = A; i-- > 0;) {
      strides[i] = step;
      step = detail::saturated_product(step, sizes[i]);
    }
  }
  /// A tensor with any strides.
  template <size_t A>
  requires(A <= 3) BasicTensor(Void* data_, DType dtype_, const int64_t (&sizes_)[A], const int64_t (&strides_)[A])
      : data(data_), dtype(dtype_), axes(A) {
    std::copy(sizes_, sizes_ + A, sizes.begin());
    std::copy(strides_, strides_ + A, strides.begin());
  }
  /// A vector, array or span, as one axis.
  template <std::ranges::contiguous_range Range>
  requires(std::ranges::borrowed_range<Range>&& std::ranges::sized_range<Range>&& requires {
    DTypeOf<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value;
  } && std::is_convertible_v<decltype(std::ranges::data(std::declval<Range&>())), Void*>)
      BasicTensor(Range&& range)  // NOLINT(bugprone-forwarding-reference-overload): a tensor is not a range
      : BasicTensor(std::ranges::data(range), DTypeOf<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value,
                    {static_cast<int64_t>(std::ranges::size(range))}) {}
  /// A writable view converts to a read-only one.
  template <class Written>
  requires(std::is_same_v<Written, void>&& std::is_const_v<Void>) BasicTensor(const BasicTensor<Written>& other)
      : data(other.data), dtype(other.dtype), axes(other.axes), sizes(other.sizes), strides(other.strides) {}

  /// Returns whether there is a tensor.
  bool given() const { return axes != 0; }
  /// Returns the number of elements.
  int64_t count() const {
    int64_t product = axes > 0 ? 1 : 0;
    for (int i = 0; i < std::min(axes, 3); ++i)
      product = detail::saturated_product(product, sizes[static_cast<size_t>(i)]);
    return product;
  }
  /// Returns the size of the last axis.
  int64_t last_size() const { return axes > 0 ? sizes[static_cast<size_t>(axes - 1)] : 0; }
  /// Returns the number of rows: the product of the other axes.
  int64_t rows() const { return axes == 3 ? detail::saturated_product(sizes[0], sizes[1]) : axes == 2 ? sizes[0] : 1; }
};

/// An output.
using Tensor = BasicTensor<void>;
/// An input.
using ConstTensor = BasicTensor<const void>;

/// The view type for a T*: ConstTensor if T is const.
template <class T>
using TensorOf = BasicTensor<std::conditional_t<std::is_const_v<T>, const void, void>>;

namespace detail {
template <class T>
constexpr DType dtype_of_view() {
  static_assert(
      requires { DTypeOf<T>::value; },
      "view() cannot tell this type's DType: for 16-bit numbers in another type, such as uint16_t, write "
      "ConstTensor(pointer, DType::kBFloat16, {N, H}) or Tensor(...)");
  return DTypeOf<T>::value;
}
}  // namespace detail

/// Returns the view of a dense row-major tensor.
template <class T, size_t A>
TensorOf<T> view(T* data, const int64_t (&sizes)[A]) {
  return {data, detail::dtype_of_view<std::remove_const_t<T>>(), sizes};
}
/// Returns the view of a tensor with these strides.
template <class T, size_t A>
TensorOf<T> view(T* data, const int64_t (&sizes)[A], const int64_t (&strides)[A]) {
  return {data, detail::dtype_of_view<std::remove_const_t<T>>(), sizes, strides};
}

/// Returns the view with its last two axes swapped.
template <class Void>
BasicTensor<Void> transposed(BasicTensor<Void> tensor) {
  if (tensor.axes < 2) return tensor;
  const auto last = static_cast<size_t>(tensor.axes - 1);
  std::swap(tensor.sizes[last - 1], tensor.sizes[last]);
  std::swap(tensor.strides[last - 1], tensor.strides[last]);
  return tensor;
}

/// Whether a vector has one entry per sequence or one per token, for vectors that may have either.
enum class EntriesPer {
  kBySize,    ///< decided by the size; InvalidInput if it fits both and they would be read differently
  kSequence,  ///< [B]
  kToken,     ///< [N]
};

/// The names of EntriesPer.
template <>
inline constexpr std::array kNamesOf<EntriesPer> = {"by_size", "sequence", "token"};

}  // namespace logitless
