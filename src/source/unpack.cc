// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#include "source/unpack.h"

#include "core/packed.h"

namespace logitless::source {

void unpack(const kernels::RowKernels&, const PackedMatrix& matrix, int64_t row, int64_t first, int64_t count,
            float* to) {
  const auto* from = reinterpret_cast<const int8_t*>(core::row_of(matrix, row)) + first;
  const float* scales = matrix.scales + row * core::row_scales(matrix);
  const int64_t group = matrix.group > 0 ? matrix.group : matrix.cols;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]) * scales[(first + i) / group];
}

}  // namespace logitless::source
