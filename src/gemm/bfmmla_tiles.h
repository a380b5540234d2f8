// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tile unit of Arm CPUs that multiply bfloat16 (FEAT_BF16: Neoverse V1, N2 and later, Apple from M2 on).
// A panel holds 2 x 4 tiles, each of two rows of A or columns of B with four elements of the depth, as BFMMLA
// reads them: the 16 tiles of one depth are contiguous. Both operands are reordered in the same way.
//
// The instruction adds two products to an element of C, twice. The sum of the products is rounded, and its
// sum with C is rounded again, to odd (an inexact result gets an odd last bit). Operands and results below
// 2^-126 are zeros, and a NaN is the default one (BFMatMulAdd() and BFDotAdd() in the Arm Architecture
// Reference Manual for A-profile; CPUs with FEAT_EBF16 do the same until a program sets FPCR.EBF). The error
// of an element of depth k is at most (k + 2) u S with S = Σ |a_p b_p| and u = 2^-24, as for a float32
// product.
#pragma once

#include "gemm/tile_unit.h"

namespace logitless::gemm::tiles::bfmmla {

inline constexpr int64_t kTileEdge = 2;   // rows or columns
inline constexpr int64_t kTileDepth = 4;  // elements of each
inline constexpr int64_t kTileElements = kTileEdge * kTileDepth;
inline constexpr int64_t kTilesOfDepth = kPanel / kTileEdge;  // contiguous tiles

/// Returns the CPU's unit, or null if the build or the CPU lacks it.
const TileUnit* cpu_unit();

/// Returns the unit in plain C++, which runs on every CPU (bfmmla_emulation.cc).
const TileUnit& emulated_unit();

}  // namespace logitless::gemm::tiles::bfmmla
