// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/row_kernels.h"
#include "logitless/tensors.h"

namespace logitless::source {

/// Unpacks numbers [first, first + count) of a row.
void unpack(const kernels::RowKernels& kernels, const PackedMatrix& matrix, int64_t row, int64_t first, int64_t count,
            float* to);

}  // namespace logitless::source
