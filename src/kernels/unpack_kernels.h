// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The contracts of the kernels that unpack rows. They have a table and a translation unit of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/packed_blocks.h"

namespace logitless::kernels {

/// A row of H numbers.
struct PackedRow {
  const uint8_t* bytes = nullptr;  // at any address
  // Of kInt8 and kNf4 only: x[i] = scales[0] · q[i], or scales[i / group] · q[i].
  const float* scales = nullptr;
  int64_t group = 0;  // > 0 where there are groups; even for kNf4
};

/// Sets to[i] to number first + i of a row, for 0 <= i < count. The range may begin and end anywhere within
/// [0, H]; it is fastest where it begins and ends at multiples of 64.
///   row   read only: the blocks and scales that a number of the range belongs to, and nothing beside them
///   to    [count]; apart from the row
/// count = 0: no effect.
///
/// The bits are those of float32 operations in the order in which packed_blocks.h writes them, d · s · q
/// being (d · s) · q, and so those of `gguf.quants.dequantize` and, of NF4, of bitsandbytes'
/// `dequantize_4bit` to float32. In ggml's packings all products are exact, because their factors have at
/// most 23 bits together. Q4_K and Q5_K round once, where they subtract, and a fused multiplication has the
/// same bits; int8 and NF4 round once, in their product. Scales may be zeros, subnormal numbers, infinities
/// and NaN, of which IEEE 754 says what they become; only the bits of a NaN are unspecified.
using UnpackRow = void (*)(const PackedRow& row, int64_t first, int64_t count, float* to);

struct UnpackKernels {
  const char* name = "";
  UnpackRow int8_row = nullptr;
  UnpackRow int8_group = nullptr;
  UnpackRow q4_0 = nullptr;
  UnpackRow q8_0 = nullptr;
  UnpackRow q4_k = nullptr;
  UnpackRow q5_k = nullptr;
  UnpackRow q6_k = nullptr;
  UnpackRow nf4 = nullptr;

  /// Returns the kernel of a packing; `group` is that of PackedRow.
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

/// Returns the readable version.
const UnpackKernels& plain_unpack_kernels();

/// Returns those for the instruction set of RowKernels that have this name, or the plain ones.
const UnpackKernels& unpack_kernels_of(std::string_view name);

}  // namespace logitless::kernels
