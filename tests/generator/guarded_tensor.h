// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tensors that own their memory, with any strides, and detect writes outside their elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "generator/drawn_call.h"
#include "logitless/tensor.h"
#include "oracle/oracle.h"
#include "support/guard_pages.h"
#include "support/host_tensor.h"

namespace logitless::testing {

/// Returns `count` entries of the first axis, from `first` on.
template <class Void>
BasicTensor<Void> cut_axis(BasicTensor<Void> tensor, int64_t first, int64_t count) {
  if (!tensor.given()) return tensor;
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  tensor.data =
      static_cast<Byte*>(tensor.data) + first * tensor.strides[0] * static_cast<int64_t>(size_of(tensor.dtype));
  tensor.sizes[0] = count;
  return tensor;
}

/// The bytes of a tensor. A copy is placed in the same way.
class PlacedBytes {
 public:
  PlacedBytes() = default;
  PlacedBytes(size_t size, std::byte value, Place place) : size_(size), place_(place) {
    if (place == Place::kHeap) {
      memory_ = {new std::byte[size], [](void* bytes) { delete[] static_cast<std::byte*>(bytes); }};
    } else {
      memory_ = guarded_memory(size, place == Place::kPageEnd ? Flush::kEnd : Flush::kBegin);
    }
    std::fill_n(data(), size, value);
  }
  PlacedBytes(const PlacedBytes& other) : PlacedBytes(other.size_, std::byte(), other.place_) { copy(other); }
  PlacedBytes(PlacedBytes&&) = default;
  PlacedBytes& operator=(const PlacedBytes& other) {
    if (size_ != other.size_ || place_ != other.place_) return *this = PlacedBytes(other);
    copy(other);
    return *this;
  }
  PlacedBytes& operator=(PlacedBytes&&) = default;

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  size_t size() const { return size_; }
  const std::byte* begin() const { return data(); }
  const std::byte* end() const { return data() + size_; }

 private:
  void copy(const PlacedBytes& other) { std::copy_n(other.data(), size_, data()); }

  std::shared_ptr<void> memory_;
  size_t size_ = 0;
  Place place_ = Place::kHeap;
};

/// All bytes are 0xff at first: NaN as a number, and not a token id. Only elements are set; the gaps between
/// them and the guard bytes around them keep this value.
class GuardedTensor {
 public:
  GuardedTensor() = default;
  /// `strides` are in elements.
  GuardedTensor(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides)
      : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
    int64_t last = 0;
    bool empty = false;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      empty = empty || sizes_[i] == 0;
      last += (sizes_[i] - 1) * strides_[i];
    }
    const size_t span = empty ? 0 : static_cast<size_t>(last + 1) * size_of(dtype);
    border_ = place_of_next == Place::kHeap ? 64 : 0;
    bytes_ = PlacedBytes(span + 2 * border_, kGuard, place_of_next);
    given_ = true;
    keep();
  }
  /// The place of tensors that are created from now on.
  static inline Place place_of_next = Place::kHeap;
  /// Row-major, with a gap after each row.
  static GuardedTensor rows(DType dtype, int64_t rows, int64_t cols, int64_t gap = 0) {
    return {dtype, {rows, cols}, {cols + gap, 1}};
  }
  static GuardedTensor vector(DType dtype, int64_t size) { return {dtype, {size}, {1}}; }

  bool given() const { return given_; }
  DType dtype() const { return dtype_; }
  Tensor view() {
    Tensor out;
    if (!given()) return out;
    out.data = bytes_.data() + border_;
    out.dtype = dtype_;
    out.axes = static_cast<int>(sizes_.size());
    std::copy(sizes_.begin(), sizes_.end(), out.sizes.begin());
    std::copy(strides_.begin(), strides_.end(), out.strides.begin());
    return out;
  }
  int64_t cols() const { return sizes_.back(); }
  int64_t count() const {
    int64_t product = 1;
    for (const int64_t size : sizes_) product *= size;
    return product;
  }
  /// Rows are counted over all axes except the last one.
  double get(int64_t row, int64_t col) const {
    return oracle::read_element(bytes_.data() + border_, dtype_, at(row, col));
  }
  double get(int64_t i) const { return get(i / cols(), i % cols()); }
  void set(int64_t row, int64_t col, double value) {
    write_element(bytes_.data() + border_ + static_cast<size_t>(at(row, col)) * size_of(dtype_), dtype_, value);
  }
  void set(int64_t i, double value) { set(i / cols(), i % cols(), value); }

  /// Sets the elements to value(row, column), row by row, and returns the numbers that they then hold.
  template <class Value>
  oracle::MatrixXd fill(const Value& value) {
    oracle::MatrixXd held(cols() == 0 ? 0 : count() / cols(), cols());
    for (int64_t row = 0; row < held.rows(); ++row) {
      for (int64_t k = 0; k < held.cols(); ++k) {
        set(row, k, value(row, k));
        held(row, k) = get(row, k);
      }
    }
    return held;
  }
  void copy_rows(const GuardedTensor& from, int64_t first, int64_t rows) {
    for (int64_t row = first; row < first + rows; ++row) {
      for (int64_t k = 0; k < cols(); ++k) set(row, k, from.get(row, k));
    }
  }

  /// Copies along the first axis, which may be the only one.
  void copy_entries(const GuardedTensor& from, int64_t first, int64_t count) {
    if (sizes_.size() > 1) return copy_rows(from, first, count);
    for (int64_t k = first; k < first + count; ++k) set(0, k, from.get(0, k));
  }

  /// Remembers the current bytes, for put_back() and unchanged().
  void keep() { kept_.assign(bytes_.begin(), bytes_.end()); }
  void put_back() { std::copy(kept_.begin(), kept_.end(), bytes_.data()); }
  bool unchanged() const { return std::equal(bytes_.begin(), bytes_.end(), kept_.begin(), kept_.end()); }
  std::span<const std::byte> bytes() const { return {bytes_.data(), bytes_.size()}; }
  /// Returns whether all bytes outside the elements are unchanged.
  bool borders_intact() const {
    std::vector<bool> of_element(bytes_.size());
    for (int64_t i = 0; i < count(); ++i) {
      const size_t first = border_ + static_cast<size_t>(at(i / cols(), i % cols())) * size_of(dtype_);
      for (size_t k = 0; k < size_of(dtype_); ++k) of_element[first + k] = true;
    }
    for (size_t k = 0; k < bytes_.size(); ++k) {
      if (!of_element[k] && bytes_.data()[k] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::byte kGuard = std::byte{0xff};

  int64_t at(int64_t row, int64_t col) const {
    if (sizes_.size() == 1) return col * strides_[0];
    if (sizes_.size() == 2) return row * strides_[0] + col * strides_[1];
    return row / sizes_[1] * strides_[0] + row % sizes_[1] * strides_[1] + col * strides_[2];
  }

  DType dtype_ = DType::kFloat32;
  std::vector<int64_t> sizes_, strides_;
  size_t border_ = 0;
  bool given_ = false;
  PlacedBytes bytes_;
  std::vector<std::byte> kept_;
};

}  // namespace logitless::testing
