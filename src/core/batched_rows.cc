// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/batched_rows.h"

#include <limits>

namespace logitless::core {

int64_t BatchedRows::extent() const {
  if (batch <= 0 || time <= 0) return 0;
  int64_t batches = 0, rows = 0, all = 0;
  if ((batch > 1 && __builtin_mul_overflow(batch - 1, batch_stride, &batches)) ||
      (time > 1 && __builtin_mul_overflow(time - 1, row_stride, &rows)) ||
      __builtin_add_overflow(batches, rows, &all) || __builtin_add_overflow(all, cols, &all) ||
      all > std::numeric_limits<int64_t>::max() / 8) {
    return -1;
  }
  return all;
}

BatchedRows batched_rows(int64_t rows, int64_t cols, int64_t row_stride, int64_t batch,
                         std::optional<int64_t> batch_stride) {
  // A BLAS checks the stride even of a single row.
  const BatchedRows matrix = {rows > 0 ? 1 : 0, rows, cols, 0, rows > 1 ? row_stride : cols};
  if (!batch_stride || batch < 2 || rows < batch) return matrix;
  const int64_t time = rows / batch;
  int64_t sequence = 0;
  if (!__builtin_mul_overflow(time, row_stride, &sequence) && *batch_stride == sequence) return matrix;
  // With one position per sequence, the sequences are the rows, if the BLAS can use their stride.
  if (time == 1 && *batch_stride >= cols && *batch_stride <= std::numeric_limits<int32_t>::max())
    return {1, rows, cols, 0, *batch_stride};
  return {batch, time, cols, *batch_stride, time > 1 ? row_stride : cols};
}

BatchedRows rows_of(const Targets& targets) {
  if (targets.size <= 0) return {};
  if (targets.time == 0) return {1, targets.size, 1, 0, targets.stride};
  return {targets.size / targets.time, targets.time, 1, targets.batch_stride, targets.stride};
}

void check_rows_apart(std::string_view batch_stride, std::string_view row_stride, const BatchedRows& rows) {
  if (rows.batch < 2 || rows.time < 2) return;  // each stride alone is at least a row
  const int64_t sequence = (rows.time - 1) * rows.row_stride + rows.cols;
  const int64_t position = (rows.batch - 1) * rows.batch_stride + rows.cols;
  if (rows.batch_stride >= sequence || rows.row_stride >= position) return;
  fail(batch_stride, " = ", rows.batch_stride, " makes rows overlap: it must be at least ", sequence,
       " (a sequence), or ", row_stride, " = ", rows.row_stride, " at least ", position,
       " (a position of all sequences)");
}

ByteRange range_of(std::string_view name, const void* data, DType dtype, const BatchedRows& rows) {
  const int64_t extent = rows.extent();
  if (!data || extent <= 0) return {name, 0, 0};
  return range_of(name, data, static_cast<size_t>(extent) * size_of(dtype));
}

}  // namespace logitless::core
