// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tile unit of a CPU with AMX (Intel, from Sapphire Rapids on). It loads the tiles of a panel as they
// stand: 16 rows of 32 bfloat16 of A, 32 x 16 of B with pairs along the depth side by side
// (TDPBF16PS, Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
#pragma once

#include "gemm/tile_unit.h"

namespace logitless::gemm::amx {

using tiles::kPanel;
using tiles::kStep;
using tiles::kStepElements;
using tiles::TileUnit;
using tiles::View;
using tiles::widened_bfloat16;

/// Returns the CPU's unit; null in builds for CPUs without one.
const TileUnit* cpu_unit();
/// Returns whether the CPU can run pack_a() and pack_b() of that unit (AVX-512).
bool cpu_can_pack();
/// Asks the system once for the unit's state; returns whether the CPU has it and the process may use it.
bool cpu_unit_available();

/// Returns a unit in plain C++ that runs on every CPU, for tests: amx_emulation.cc.
const TileUnit& emulated_unit();

/// What plans count with, for both units. In bfloat16, two cores do 1,600 GFLOP/s, with a memory that reads
/// and writes 20 GB/s.
inline constexpr double kFlopsPerByte = 80;
inline constexpr int64_t kFewRows = 6;
inline constexpr int64_t kTileEntries = 512;

}  // namespace logitless::gemm::amx
