// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/gemm.h"

namespace logitless::gemm {

// These are null where the CPU has no such unit or the system does not give it away, and where the
// environment variable LOGITLESS_AMX, or LOGITLESS_BFMMLA, is 0 when it is first asked for. Where it is
// "emulated", plain C++ does what the unit would do, on every CPU: that is for tests, and slow.

/// Returns the backend "amx", whose products of bfloat16 run on the tile unit of Intel's CPUs by kernels of
/// our own and whose others are those of float32_backend().
const Backend* amx_backend();

/// Returns the backend "bfmmla", which does the same with the instruction of Arm's CPUs (bfmmla_tiles.h). It
/// was tested on an emulated CPU, and never timed on one.
const Backend* bfmmla_backend();

/// Returns the backend "amx_float32", which is "amx" and multiplies float32 by float32 on the unit, too, each
/// element as three bfloat16 terms (bfloat16_terms.h). It was never run on such a unit, so nobody gets it who
/// does not ask for it. Of an element c = Σ a_p b_p of a product of depth k, with S = Σ |a_p b_p| < 2^127 and
/// u = 2^-24:
///   - its error is at most (min(k, 40) + k / 576 + 2) u S, where that of a float32 product is bounded by k u S,
///     plus 2^-126 (8 (k + 2) + 1.02 Σ (|a_p| + |b_p|)), because the unit knows no denormal numbers (the
///     derivation is in docs/numerics.md). What c held adds (k / 576 + 1) u of itself;
///   - its bits depend on its row of A, its column of B and k;
///   - it is infinite or NaN where float32's is, but for an infinity times a denormal number, which is NaN.
///     A sum that comes within 2^-6 of the largest float32 may be infinite, too.
const Backend* amx_float32_backend();

/// Returns the backend "amx_float32_two_terms", which does the same with two terms of each element and three
/// products: half the work, for an error of up to 2^-15 (1 + 2^-18) S more, and k / 512 in place of k / 576.
const Backend* amx_float32_two_terms_backend();

}  // namespace logitless::gemm
