// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 oneDNN multiplies bfloat16 with
// the CPU's own bfloat16 units (AVX512-BF16, AMX), and float32 where the kernels of OpenBLAS are narrower
// than the CPU. It is there where the build found the library.
#pragma once

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Returns the backend "onednn", or null where oneDNN multiplies nothing faster than openblas_backend(), and
/// where the environment variable LOGITLESS_ONEDNN is 0 when it is first asked for. Other products are
/// OpenBLAS's.
const Backend* onednn_backend();

/// Returns whether that backend multiplies bfloat16 or float32, as it is.
bool onednn_multiplies(DType dtype);

/// Computes a product, which is not empty, of operands that are both bfloat16 or both float32, on the threads
/// that OpenMP is set to.
void multiply_by_onednn(const Product<float>& product);

}  // namespace logitless::gemm
