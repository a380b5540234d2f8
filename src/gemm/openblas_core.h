// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// A core is OpenBLAS's name for a set of its kernels. An OpenBLAS that is older than the CPU may choose a
// core that is narrower than the CPU: version 0.3.21 runs SSE kernels on Emerald Rapids, at a fifth of the
// speed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gemm/gemm.h"

namespace logitless::gemm {

/// Generations of x86-64 vector instructions for which libraries have separate GEMM kernels.
enum class VectorLevel { kSse, kAvx, kAvx2, kAvx512 };

/// Returns what the CPU and the operating system can run, or nothing on other architectures. kAvx2 includes
/// FMA; kAvx512 includes F, DQ, BW, VL and CD, for which OpenBLAS's SkylakeX kernels are compiled.
std::optional<VectorLevel> cpu_vector_level();

/// Returns the generation for which a core is written, or nothing if it is not a core of x86-64. The case of
/// its letters is ignored.
std::optional<VectorLevel> core_vector_level(std::string_view core);

/// Returns whether the core is known to use less than `level`.
bool is_narrower(std::string_view core, VectorLevel level);

/// Returns one line that says which products run on kernels narrower than the CPU, and how to change that;
/// empty if the core is not known to be narrower. `products` are those that OpenBLAS computes, e.g.
/// "float64".
std::string narrow_core_warning(std::string_view core, std::optional<VectorLevel> cpu, std::string_view products);

/// Returns the rule of the core's float32 (with `in_double`, float64) products, for operands that need no
/// widening. An unknown core gets a rule that holds for all known ones.
RowRule openblas_row_rule(std::string_view core, bool in_double, int64_t n, int64_t k, bool b_transposed,
                          int64_t most_rows);

}  // namespace logitless::gemm
