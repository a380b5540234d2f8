// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// oneDNN multiplies bfloat16 with the CPU's own bfloat16 units (AVX512-BF16, AMX), and float32 if OpenBLAS's
// kernels are narrower than the CPU's vectors.
#pragma once

#include "gemm/routine.h"

namespace logitless::gemm {

#ifdef LOGITLESS_ONEDNN
/// Return null if another routine is at least as fast, or if the environment variable LOGITLESS_ONEDNN is 0
/// at the first call.
const Routine* onednn_float32();
const Routine* onednn_bfloat16();

/// Computes a product that is not empty, on the threads that OpenMP is set to. Both operands are float32 or
/// both are bfloat16.
void multiply_by_onednn(const Product<float>& product);
#else
inline const Routine* onednn_float32() { return nullptr; }
inline const Routine* onednn_bfloat16() { return nullptr; }
#endif

}  // namespace logitless::gemm
