// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The loops of the CPU's tile unit (amx_tiles.cc) and of the emulated one (amx_emulation.cc). A `Unit` has
// eight tiles of 16 rows of 64 bytes, which template arguments select:
//   load<T>(from, stride)   reads rows that are `stride` bytes apart      zero<T>()
//   store<T>(to, stride)    writes them                                   dot<C, A, B>()   TDPBF16PS: C += A · B
#pragma once

#include <cstdint>

#include "gemm/amx_tiles.h"

namespace logitless::gemm::tiles::amx {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileElements = kTileRows * kStep;  // 1 KiB
inline constexpr int64_t kRowBytes = 64;

// Tiles 0 to 3 hold a block of C, 4 and 5 a step of A, and 6 and 7 a step of B.
template <class Unit>
inline void multiply_block(Unit& unit, const uint16_t* a, const uint16_t* b, int64_t steps, float* c, int64_t ldc,
                           bool accumulate) {
  float* const low = c + kTileRows * ldc;
  const int64_t stride = ldc * static_cast<int64_t>(sizeof(float));
  if (accumulate) {
    unit.template load<0>(c, stride);
    unit.template load<1>(c + kTileRows, stride);
    unit.template load<2>(low, stride);
    unit.template load<3>(low + kTileRows, stride);
  } else {
    unit.template zero<0>();
    unit.template zero<1>();
    unit.template zero<2>();
    unit.template zero<3>();
  }
  for (int64_t step = 0; step < steps; ++step, a += kStepElements, b += kStepElements) {
    unit.template load<4>(a, kRowBytes);
    unit.template load<6>(b, kRowBytes);
    unit.template dot<0, 4, 6>();
    unit.template load<7>(b + kTileElements, kRowBytes);
    unit.template dot<1, 4, 7>();
    unit.template load<5>(a + kTileElements, kRowBytes);
    unit.template dot<2, 5, 6>();
    unit.template dot<3, 5, 7>();
  }
  unit.template store<0>(c, stride);
  unit.template store<1>(c + kTileRows, stride);
  unit.template store<2>(low, stride);
  unit.template store<3>(low + kTileRows, stride);
}

}  // namespace logitless::gemm::tiles::amx
