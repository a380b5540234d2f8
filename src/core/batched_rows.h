// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The positions of the rows of [batch, time, cols], with separate strides for sequences and positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/checks.h"

namespace logitless::core {

/// Row i = b * time + t begins at element b * batch_stride + t * row_stride.
struct BatchedRows {
  int64_t batch = 0;
  int64_t time = 0;
  int64_t cols = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;

  int64_t offset(int64_t row) const { return row / time * batch_stride + row % time * row_stride; }
  /// Returns whether all rows have a single stride, row_stride.
  bool is_matrix() const { return batch < 2; }
  /// Returns the number of elements from the first to the last one: 0 without rows, -1 if they do not fit in
  /// a 64-bit offset.
  int64_t extent() const;
};

/// Places `rows` rows in `batch` sequences of equal length; `rows` is a multiple of `batch`. Without
/// `batch_stride` the sequences are contiguous. Returns a matrix whenever the strides allow it. The row
/// stride of a single row becomes `cols`, which a BLAS accepts.
BatchedRows batched_rows(int64_t rows, int64_t cols, int64_t row_stride, int64_t batch,
                         std::optional<int64_t> batch_stride);

/// Places the ids of targets, as rows of one column.
BatchedRows rows_of(const Targets& targets);

/// Throws if two rows of an output overlap: `batch_stride` must be at least the extent of a sequence, or
/// `row_stride` at least the extent of a position of all sequences. The first two arguments name the strides
/// in messages.
void check_rows_apart(std::string_view batch_stride, std::string_view row_stride, const BatchedRows& rows);

/// Returns the range from the first to the last element, gaps between rows included.
ByteRange range_of(std::string_view name, const void* data, DType dtype, const BatchedRows& rows);

}  // namespace logitless::core
