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

}  // namespace logitless::gemm
