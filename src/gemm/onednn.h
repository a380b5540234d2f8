// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// oneDNN multiplies bfloat16 with the CPU's own bfloat16 units (AVX512-BF16, AMX). It is there where the
// build found the library.
#pragma once

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Returns the backend that multiplies bfloat16 by bfloat16 with oneDNN, and everything else as
/// openblas_backend() does; or null where this CPU or the library has no such product.
const Backend* onednn_backend();

/// Returns whether that backend, where there is one, multiplies bfloat16 faster than openblas_backend()
/// widens and multiplies it.
bool onednn_is_faster();

}  // namespace logitless::gemm
