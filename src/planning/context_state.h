// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"
#include "logitless/context.h"

namespace logitless::detail {

/// The choices of a Context. Immutable, and shared by the Context's copies.
struct ContextState {
  ContextOptions options;
  const kernels::RowKernels* kernels = nullptr;
  const gemm::Backend* gemm = nullptr;
  std::string simd_target;
  std::string gemm_backend;
};

/// Returns the choices of `context`.
const ContextState& state_of(const Context& context);

}  // namespace logitless::detail
