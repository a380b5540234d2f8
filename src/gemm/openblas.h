// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm/gemm.h"

namespace logitless::gemm {

const Backend& openblas_backend();

/// Describes the process's OpenBLAS, without warnings.
Description openblas_description();

}  // namespace logitless::gemm
