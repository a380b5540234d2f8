// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "core/packed.h"

#include <string>

#include "core/checks.h"

namespace logitless::core {

void check_packed(std::string_view name, const PackedMatrix& matrix) {
  const auto packing = static_cast<size_t>(matrix.packing);
  if (packing >= kNamesOf<Packing>.size()) fail("packing = ", packing, " is not a packing format");
  check_sizes(name, matrix.data, matrix.rows, matrix.cols);
  const PackedBlock block = block_of(matrix.packing);
  if (matrix.cols % block.numbers != 0) {
    fail(name, ".cols = ", matrix.cols, " is not a multiple of ", block.numbers, ", the block of ",
         name_of(matrix.packing));
  }
  if (matrix.row_bytes && matrix.rows > 1 && *matrix.row_bytes < row_bytes(matrix)) {
    fail(name, ".row_bytes = ", *matrix.row_bytes, " is less than a row, which takes ", row_bytes(matrix));
  }
  if (has_scales_apart(matrix.packing)) {
    if (matrix.group < 0 || (matrix.group > 0 && matrix.cols % matrix.group != 0)) {
      fail("group = ", matrix.group, " must be 0 or a divisor of the ", matrix.cols, " numbers of a row of ", name);
    }
    if (matrix.group % block.numbers != 0) {
      fail("group = ", matrix.group, " is not a multiple of ", block.numbers, ", the block of ",
           name_of(matrix.packing));
    }
    if (!matrix.scales && matrix.rows > 0) {
      fail("scales is null, but ", name_of(matrix.packing), " needs them");
    }
    check_aligned("scales", matrix.scales, sizeof(float), "float32");
  } else {
    if (matrix.scales) fail("scales is set, but ", name_of(matrix.packing), " has its own");
    if (matrix.group != 0) {
      fail("group = ", matrix.group, " is set, but ", name_of(matrix.packing), " has no groups");
    }
  }
  int64_t bytes = 0, of_scales = 0;
  if (__builtin_mul_overflow(matrix.rows, row_step(matrix), &bytes) ||
      __builtin_mul_overflow(matrix.rows, row_scales(matrix) * static_cast<int64_t>(sizeof(float)), &of_scales)) {
    fail(name, ".rows = ", matrix.rows, " needs more bytes than memory has");
  }
}

}  // namespace logitless::core
