// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/routine.h"

namespace logitless::gemm {

/// Return routines for bfloat16 that run our own kernels on the tile unit of Intel's CPUs (AMX), or with
/// an instruction of Arm's CPUs (BFMMLA), which was tested on an emulated CPU but never timed on a real
/// one. They return null if the CPU has no such unit, if the system does not permit its use, or if the
/// environment variable LOGITLESS_AMX or LOGITLESS_BFMMLA is 0 at the first call. If the variable is
/// "emulated", plain C++ computes the same on any CPU: slowly, for tests.
const Routine* amx_routine();
const Routine* bfmmla_routine();

}  // namespace logitless::gemm
