// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/batched_rows.h"
#include "core/check_fields.h"

namespace logitless::core {
namespace {

ByteRange matrix_range(std::string_view name, const void* data, DType dtype, int64_t rows, int64_t cols,
                       int64_t stride) {
  if (rows <= 0 || cols <= 0) return {name, 0, 0};
  return range_of(name, data, dtype, BatchedRows{1, rows, cols, 0, stride});
}

void check_stride(MemberName stride_name, int64_t stride, int64_t cols) {
  if (stride >= cols) return;
  if (cols == 1) fail(stride_name, " = ", stride, " must be positive");
  fail(stride_name, " = ", stride, " is shorter than a row of ", cols, " elements");
}

}  // namespace

void check_strides(std::string_view name, MemberName batch_stride, MemberName row_stride, const BatchedRows& rows) {
  if (rows.batch < 1 || rows.time < 1) return;
  if (rows.time > 1) check_stride(row_stride, rows.row_stride, rows.cols);
  if (rows.batch > 1) check_stride(batch_stride, rows.batch_stride, rows.cols);
  if (rows.extent() >= 0) return;
  fail(name, " of [", rows.batch, ", ", rows.time, ", ", rows.cols, "] with strides ", rows.batch_stride, " and ",
       rows.row_stride, " does not fit 64-bit offsets");
}

void check_aligned(std::string_view name, const void* data, size_t bytes, std::string_view type) {
  if ((reinterpret_cast<uintptr_t>(data) & (bytes - 1)) == 0) return;  // bytes is a power of two
  fail(name, ".data = ", data, " is not aligned to its element type ", type);
}

void check_sizes(std::string_view name, const void* data, int64_t rows, int64_t cols) {
  if (rows < 0) fail(name, ".rows = ", rows, " is negative");
  if (cols <= 0) fail(name, ".cols = ", cols, " must be positive");
  if (rows > kMostRows) fail(name, ".rows = ", rows, " is above ", kMostRows, ", the BLAS's limit");
  if (cols > kMostRows) fail(name, ".cols = ", cols, " is above ", kMostRows, ", the BLAS's limit");
  if (rows > 0 && !data) fail(name, ".data is null");
}

void check_blas_stride(MemberName row_stride, const BatchedRows& rows) {
  if (rows.time < 2 || rows.row_stride <= kMostRows) return;
  fail(row_stride, " = ", rows.row_stride, " is above ", kMostRows, ", the BLAS's limit");
}

void check_matrix(std::string_view name, const void* data, int64_t rows, int64_t cols, int64_t stride) {
  check_sizes(name, data, rows, cols);
  const MemberName row_stride = {name, "stride"};
  const BatchedRows places = {1, rows, cols, 0, stride};
  check_strides(name, row_stride, row_stride, places);
  check_blas_stride(row_stride, places);
}

void check_targets(std::string_view name, const Targets& targets, int64_t rows, std::string_view rows_name) {
  if (targets.size != rows) {
    fail(name, " ", HasEntries(targets.size), " but ", rows_name, " has ", rows, " rows");
  }
  if (rows > 0 && !targets.data32 && !targets.data64) fail(name, ".data is null");
  check_aligned(name, targets.data32, sizeof(int32_t), "int32");
  check_aligned(name, targets.data64, sizeof(int64_t), "int64");
  if (targets.time < 0) fail(name, ".time = ", targets.time, " is negative");
  if (targets.time > 0 && targets.size % targets.time != 0) {
    fail(name, " has ", targets.size, " entries, which is not a multiple of its time = ", targets.time);
  }
  check_strides(name, {name, "batch_stride"}, {name, "stride"}, rows_of(targets));
}

ByteRange range_of(std::string_view name, const Matrix& m) {
  return matrix_range(name, m.data, m.dtype, m.rows, m.cols, m.stride);
}
ByteRange range_of(std::string_view name, const ConstMatrix& m) {
  return matrix_range(name, m.data, m.dtype, m.rows, m.cols, m.stride);
}
ByteRange range_of(std::string_view name, const Vector& v) {
  return matrix_range(name, v.data, v.dtype, 1, v.size, v.size);
}
ByteRange range_of(std::string_view name, const ConstVector& v) {
  return matrix_range(name, v.data, v.dtype, 1, v.size, v.size);
}
ByteRange range_of(std::string_view name, const void* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {name, begin, data ? begin + bytes : begin};
}

void check_overlaps(std::span<const ByteRange> outputs, std::span<const ByteRange> inputs) {
  const auto overlap = [](const ByteRange& a, const ByteRange& b) {
    return a.begin < a.end && b.begin < b.end && a.begin < b.end && b.begin < a.end;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (const ByteRange& input : inputs) {
      if (overlap(outputs[i], input)) fail("output ", outputs[i].name, " overlaps input ", input.name);
    }
    for (size_t j = 0; j < i; ++j) {
      if (overlap(outputs[i], outputs[j])) fail("output ", outputs[i].name, " overlaps output ", outputs[j].name);
    }
  }
}

}  // namespace logitless::core
