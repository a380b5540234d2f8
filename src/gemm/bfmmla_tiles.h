// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tile unit of an Arm CPU that multiplies bfloat16 (FEAT_BF16: Neoverse V1, N2 and later, Apple from M2
// on). A panel holds 2 x 4 tiles, two rows of A or columns of B with four elements of the depth each, as
// BFMMLA reads them: the 16 of one depth stand together. Both operands are packed alike.
//
// The instruction adds to an element of C, twice, two products: their sum is rounded, and the sum of that
// with C is rounded again, to odd (a number that cannot be kept gets an odd last bit). Operands and results
// below 2^-126 are zeros, and NaN is the default one (BFMatMulAdd() and BFDotAdd() in the Arm Architecture
// Reference Manual for A-profile; CPUs with FEAT_EBF16 do the same until a program sets FPCR.EBF). An element
// of depth k is off by at most (k + 2) u S, with S = Σ |a_p b_p| and u = 2^-24, as a float32 product is.
#pragma once

#include "gemm/tile_unit.h"

namespace logitless::gemm::bfmmla {

using tiles::kPanel;
using tiles::kStep;
using tiles::kStepElements;
using tiles::TileUnit;
using tiles::View;
using tiles::widened_bfloat16;

inline constexpr int64_t kTileEdge = 2;   // rows or columns
inline constexpr int64_t kTileDepth = 4;  // elements of each
inline constexpr int64_t kTileElements = kTileEdge * kTileDepth;
inline constexpr int64_t kTilesOfDepth = kPanel / kTileEdge;  // that stand together

/// Returns the CPU's unit; null where the build or the CPU has none.
const TileUnit* cpu_unit();

/// Returns a unit in plain C++ that gives the same bits on every CPU, for tests: bfmmla_emulation.cc.
const TileUnit& emulated_unit();

/// What plans count with, for both units: estimates, because no such CPU was at hand. A core does 32 FLOP an
/// instruction, about two instructions a cycle.
inline constexpr double kFlopsPerByte = 16;
inline constexpr int64_t kFewRows = 8;
inline constexpr int64_t kTileEntries = 512;

}  // namespace logitless::gemm::bfmmla
