// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Addresses and sizes of the rows of a packed matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/matrices.h"
#include "logitless/packed.h"

namespace logitless::core {

/// Returns the bytes of a row's numbers, without scales.
inline int64_t row_bytes(const PackedMatrix& matrix) {
  const PackedBlock block = block_of(matrix.packing);
  return matrix.cols / block.numbers * block.bytes;
}
/// Returns the bytes from one row to the next.
inline int64_t row_step(const PackedMatrix& matrix) { return matrix.row_bytes.value_or(row_bytes(matrix)); }
inline const std::byte* row_of(const PackedMatrix& matrix, int64_t row) {
  return static_cast<const std::byte*>(matrix.data) + row * row_step(matrix);
}
/// Returns the number of scales per row.
inline int64_t row_scales(const PackedMatrix& matrix) {
  if (!has_scales_apart(matrix.packing)) return 0;
  return matrix.group > 0 ? matrix.cols / matrix.group : 1;
}
/// Returns the bytes from the first to the last number, and the bytes of all scales.
inline size_t packed_bytes(const PackedMatrix& matrix) {
  if (matrix.rows == 0) return 0;
  return static_cast<size_t>((matrix.rows - 1) * row_step(matrix) + row_bytes(matrix));
}
inline size_t scale_bytes(const PackedMatrix& matrix) {
  return static_cast<size_t>(matrix.rows * row_scales(matrix)) * sizeof(float);
}
/// Returns rows [first, first + count).
inline PackedMatrix rows_of(const PackedMatrix& matrix, int64_t first, int64_t count) {
  PackedMatrix out = matrix;
  out.rows = count;
  if (matrix.data) out.data = row_of(matrix, first);
  if (matrix.scales) out.scales = matrix.scales + first * row_scales(matrix);
  return out;
}

/// Checks shape, row step, scales and pointers. Throws InvalidInput.
void check_packed(std::string_view name, const PackedMatrix& matrix);

}  // namespace logitless::core
