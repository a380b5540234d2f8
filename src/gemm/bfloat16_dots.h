// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Products of a few rows of bfloat16 by the CPU's instruction for dot products of pairs: VDPBF16PS of
// AVX512-BF16 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2). It multiplies twice
// as many elements as a float32 instruction does, and nothing is widened first. Like the tile units and
// oneDNN's products it takes denormal numbers for zeros.
#pragma once

#include <cstdint>

namespace logitless::gemm {

/// C [rows, cols] = A [rows, depth] · op(B), plus C itself when `accumulate`; C is float32, row-major. An
/// element's bits depend on its row of A, on B and on `accumulate` alone: not on the other rows.
struct Bfloat16Dots {
  /// Rows of A are `a_stride` apart and have zeros from `depth` to the next multiple of this.
  static constexpr int64_t kStep = 32;

  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;  // > 0
  const uint16_t* a = nullptr;
  int64_t a_stride = 0;
  const uint16_t* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;  // B is stored [cols, depth], else [depth, cols]
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

/// Returns what multiplies them on the calling thread; null where the CPU has no such instruction.
void (*bfloat16_dots())(const Bfloat16Dots& dots);

}  // namespace logitless::gemm
