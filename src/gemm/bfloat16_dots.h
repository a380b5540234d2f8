// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of few rows of bfloat16 with the CPU's instruction for dot products of pairs: VDPBF16PS of
// AVX512-BF16 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). It multiplies twice
// as many elements as a float32 instruction, and operands are not widened first. Like the tile units and
// oneDNN, it treats denormal numbers as zeros.
#pragma once

#include <cstdint>

#include "kernels/row_kernels.h"

namespace logitless::gemm {

/// Operands are bfloat16, and each row of A is followed by zeros up to the next multiple of kDotsDepth
/// elements. The bits of an element of C depend only on its row of A, on B and on `accumulate`.
using BFloat16Dots = kernels::FewRowsArgs<float, bfloat16>;
inline constexpr int64_t kDotsDepth = 32;

/// Returns the function that multiplies on the calling thread, or null if the CPU lacks the instruction.
void (*bfloat16_dots())(const BFloat16Dots&);

}  // namespace logitless::gemm
