// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Returns the backend "amx", whose products of bfloat16 run on the CPU's tile unit by kernels of our own and
/// whose others are OpenBLAS's. It is null where the CPU has no AMX, where the system does not give it
/// away, and where the environment variable LOGITLESS_AMX is 0 when it is first asked for.
const Backend* amx_backend();

}  // namespace logitless::gemm
