// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Rows of tokens that own their memory, with any element type and padding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/matrices.h"
#include "logitless/dtype.h"

namespace logitless::testing {

/// Returns the nearest bfloat16, ties to even. Independent of the library's own rounding.
bfloat16 to_bfloat16(double value);
double to_double(bfloat16 value);
/// The same for float16.
float16 to_float16(double value);
double to_double(float16 value);

/// Stores the nearest value of the element type.
void write_element(void* at, DType dtype, double value);

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
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0);
  /// The rows are `batch` sequences of equal length.
  HostTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding, Rows places, int64_t batch);

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
  int64_t begin_of(int64_t row) const;
  int64_t elements() const { return rows_ == 0 ? 0 : begin_of(rows_ - 1) + cols_; }

  DType dtype_ = DType::kFloat32;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  int64_t stride_ = 0;
  int64_t time_ = 0;
  std::optional<int64_t> batch_stride_;
  std::shared_ptr<std::byte[]> data_;  ///< shared by copies
};

}  // namespace logitless::testing
