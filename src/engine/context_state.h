// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gemm/gemm.h"
#include "logitless/context.h"
#include "rows/row_kernels.h"

namespace logitless::detail {

/// What a Context has chosen. Immutable, shared by its copies.
struct ContextState {
  ContextOptions options;
  const rows::RowKernels* kernels = nullptr;
  const gemm::Backend* gemm = nullptr;
  std::string simd_target;
  std::string gemm_backend;
};

}  // namespace logitless::detail
