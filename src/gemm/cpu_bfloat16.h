// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What an x86-64 CPU and its operating system support for products of bfloat16. Everything is false on other
// CPUs.
#pragma once

namespace logitless::gemm {

/// Returns whether the system saves these registers of a thread, as a mask of XCR0 (Intel 64 and IA-32
/// Architectures Software Developer's Manual, volume 1, 13.3).
bool system_saves(unsigned registers);

/// Returns whether AVX-512's F, BW, VL and BF16 may be used.
bool cpu_has_avx512_bfloat16();

}  // namespace logitless::gemm
