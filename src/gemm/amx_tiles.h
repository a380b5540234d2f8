// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// The tile unit of CPUs with AMX (Intel, from Sapphire Rapids on). It loads the tiles of a panel directly: 16
// rows of 32 bfloat16 of A, or 32 x 16 of B with pairs of the depth side by side (TDPBF16PS, Intel 64 and
// IA-32 Architectures Software Developer's Manual, volume 2).
#pragma once

#include "gemm/tile_unit.h"

namespace logitless::gemm::tiles::amx {

/// Returns the CPU's unit, or null in builds for CPUs without one. Its reorder functions only need AVX-512
/// (cpu_has_avx512_bfloat16()); the others need is_cpu_unit_usable().
const TileUnit* cpu_unit();
/// Asks the system for permission to use the unit, and returns whether the CPU has it and the system permits
/// it.
bool is_cpu_unit_usable();

/// Returns the unit in plain C++, which runs on every CPU (amx_emulation.cc).
const TileUnit& emulated_unit();

}  // namespace logitless::gemm::tiles::amx
