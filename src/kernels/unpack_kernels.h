// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contract of the kernels that unpack rows.
#pragma once

#include <cstdint>

#include "logitless/packed.h"

namespace logitless::kernels {

/// A row of H numbers.
struct PackedRow {
  const uint8_t* bytes = nullptr;  // at any address
  // kInt8 and kNf4 only: x[i] = scales[0] · q[i], or with groups scales[i / group] · q[i].
  const float* scales = nullptr;
  int64_t group = 0;  // > 0: numbers per group, even for kNf4; 0: one scale per row
};

/// Sets to[i] to number first + i of a row, for 0 <= i < count. The range may begin and end anywhere within
/// [0, H]; it is fastest if both ends are multiples of 64.
///   row   read only: only the blocks and scales of numbers in the range are read
///   to    [count]; must not overlap the row
/// count = 0: no effect.
///
/// The results have the bits of the formulas in packed_blocks.h, evaluated in float32 in the order written, d
/// · s · q from the left. So they equal `gguf.quants.dequantize` and, for NF4, bitsandbytes'
/// `dequantize_4bit` to float32. In ggml's packings all products are exact, because their factors have at
/// most 23 bits together. Q4_K and Q5_K round once, in the subtraction, so a fused multiplication has the
/// same bits; int8 and NF4 round once, in the product. Scales may be zeros, subnormal numbers, infinities and
/// NaN, with the results of IEEE 754; only the bits of a NaN are unspecified.
using UnpackRow = void (*)(const PackedRow& row, int64_t first, int64_t count, float* to);

struct UnpackKernels {
  UnpackRow int8_row = nullptr;
  UnpackRow int8_group = nullptr;
  UnpackRow q4_0 = nullptr;
  UnpackRow q8_0 = nullptr;
  UnpackRow q4_k = nullptr;
  UnpackRow q5_k = nullptr;
  UnpackRow q6_k = nullptr;
  UnpackRow nf4 = nullptr;

  /// Returns the kernel for a packing; `group` is PackedRow::group.
  UnpackRow of(Packing packing, int64_t group) const {
    switch (packing) {
      case Packing::kInt8:
        return group > 0 ? int8_group : int8_row;
      case Packing::kQ4_0:
        return q4_0;
      case Packing::kQ8_0:
        return q8_0;
      case Packing::kQ4K:
        return q4_k;
      case Packing::kQ5K:
        return q5_k;
      case Packing::kQ6K:
        return q6_k;
      case Packing::kNf4:
        return nf4;
    }
    return nullptr;
  }
};

}  // namespace logitless::kernels
