// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Tensors that own their memory, for tests: any element type, padded rows, and memory from any allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/matrices.h"
#include "logitless/dtype.h"

namespace logitless::testing {

/// Returns `bytes` bytes, aligned for a double if the element size allows it. Never null, even for 0 bytes.
using Allocate = std::function<std::shared_ptr<void>(size_t bytes)>;

/// Returns exactly `bytes` bytes from the heap, so that the address sanitizer detects any access beyond them.
std::shared_ptr<void> heap_memory(size_t bytes);

/// Returns the nearest bfloat16, ties to even. Independent of the library's own rounding.
bfloat16 to_bfloat16(double value);
double to_double(bfloat16 value);
/// The same for float16.
float16 to_float16(double value);
double to_double(float16 value);

/// Returns half the spacing of `dtype` at |value|: the error of one rounding to nearest.
double half_ulp(double value, DType dtype);

/// The layout of the rows of [batch, time, cols] in memory.
enum class Rows {
  kFollowing,   ///< one after another
  kSlice,       ///< hidden[:, :-2]: two rows that must not be accessed follow each sequence
  kTransposed,  ///< [time, batch, cols]
};

/// A row-major matrix with `padding` extra elements between the rows (none after the last one). The rows may
/// belong to several sequences. Everything is NaN at first, and the padding stays NaN: a wrong read then
/// shows in the results, and padding_is_intact() detects a wrong write.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0, const Allocate& allocate = heap_memory);
  /// The rows are `batch` sequences of equal length.
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding, Rows places, int64_t batch,
             const Allocate& allocate);

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }

  double get(int64_t row, int64_t col) const;
  /// Stores the nearest value of the element type.
  void set(int64_t row, int64_t col, double value);

  /// The batch stride of the views; not set if the rows follow one another.
  std::optional<int64_t> batch_stride() const { return batch_stride_; }

  ConstMatrix view() const { return {data_.get(), dtype_, rows_, cols_, stride_}; }
  Matrix output() { return {data_.get(), dtype_, rows_, cols_, stride_}; }
  ConstVector vector_view() const { return {data_.get(), dtype_, cols_}; }
  Vector vector_output() { return {data_.get(), dtype_, cols_}; }

  std::span<const std::byte> bytes() const;
  bool padding_is_intact() const;

 private:
  void allocate_untouched(const Allocate& allocate);
  int64_t begin_of(int64_t row) const;
  int64_t elements() const { return rows_ == 0 ? 0 : begin_of(rows_ - 1) + cols_; }

  DType dtype_ = DType::kFloat32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  int64_t time_ = 0;
  std::optional<int64_t> batch_stride_;
  std::shared_ptr<void> data_;
};

/// A plain array in memory from the test's allocator.
template <class T>
class HostArray {
 public:
  HostArray() = default;
  HostArray(const std::vector<T>& values, const Allocate& allocate)
      : size_(values.size()), data_(allocate(values.size() * sizeof(T))) {
    for (size_t i = 0; i < size_; ++i) data()[i] = values[i];
  }

  T* data() const { return static_cast<T*>(data_.get()); }
  int64_t size() const { return static_cast<int64_t>(size_); }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  size_t size_ = 0;
  std::shared_ptr<void> data_;
};

}  // namespace logitless::testing
