// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A call with few rows is bound by memory: it reads all of the head for a handful of multiply-adds an
// element. Libraries pack the head before they multiply, which costs several times what reading it does.
#pragma once

#include <cstdint>

#include "gemm/gemm.h"
#include "kernels/row_kernels.h"

namespace logitless::gemm {

/// No more rows than these are few. Where a backend is fast with few of them, fewer are: Backend::few_rows().
inline constexpr int64_t kFewRows = kernels::kMostFewRows;

/// Returns the backend for calls with at most `rows` rows: where these are few for operands of these types,
/// one whose products of few rows read B once and as it stands, 16-bit types too, and leave every other
/// product to `backend`; else `backend` itself. The rows of such products never depend on each other.
const Backend& backend_for_rows(const Backend& backend, int64_t rows, DType a, DType b);

}  // namespace logitless::gemm
