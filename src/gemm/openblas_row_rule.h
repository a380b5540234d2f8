// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// Which of OpenBLAS's products depend on their neighbours, which is a property of the kernels of
// each core.
#pragma once

#include <string_view>

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Returns the rule of single-precision (or, with `in_double`, double-precision) products of the kernels
/// named `core`, all of whose operands have the type of the sums. A core that is not known gets a rule that
/// holds for all known ones.
RowRule openblas_row_rule(std::string_view core, bool in_double, int64_t n, int64_t k, bool b_transposed,
                          int64_t most_rows);

}  // namespace logitless::gemm
