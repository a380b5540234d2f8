// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// What an x86-64 CPU and its system have for products of bfloat16.
#pragma once

namespace logitless::gemm {

/// Returns whether the system saves these parts of a thread's registers, of XCR0 (Intel 64 and IA-32
/// Architectures Software Developer's Manual, volume 1, 13.3). False on other CPUs.
bool system_saves(unsigned parts);

/// Returns whether AVX-512's F, BW, VL and BF16 may be used.
bool cpu_has_avx512_bfloat16();

}  // namespace logitless::gemm
