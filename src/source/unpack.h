// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/packed.h"
#include "kernels/row_kernels.h"

namespace logitless::source {

/// Unpacks rows of a packed matrix with the kernels of one instruction set.
class Unpacker {
 public:
  Unpacker(const kernels::RowKernels& kernels, const PackedMatrix& matrix)
      : matrix_(matrix),
        group_(matrix.group < matrix.cols ? matrix.group : 0),
        unpack_(kernels.unpack.of(matrix.packing, group_)) {}

  /// Unpacks numbers [first, first + count) of a row.
  void operator()(int64_t row, int64_t first, int64_t count, float* to) const {
    kernels::PackedRow packed;
    packed.bytes = reinterpret_cast<const uint8_t*>(core::row_of(matrix_, row));
    packed.scales = matrix_.scales ? matrix_.scales + row * core::row_scales(matrix_) : nullptr;
    packed.group = group_;
    unpack_(packed, first, count, to);
  }

 private:
  const PackedMatrix& matrix_;
  int64_t group_;  // 0: one scale per row
  kernels::UnpackRow unpack_;
};

}  // namespace logitless::source
