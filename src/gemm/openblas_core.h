// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0 OpenBLAS calls a set of its
// kernels a core. An OpenBLAS that is older than the CPU may choose a core that is narrower than the CPU:
// version 0.3.21 runs SSE kernels on Emerald Rapids, at a fifth of the speed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace logitless::gemm {

/// Generations of x86-64 vector instructions, as far as kernels of matrix products differ by them.
enum class VectorLevel { kSse, kAvx, kAvx2, kAvx512 };

/// Returns what the CPU and the operating system can run, or nothing on other architectures. kAvx2 includes
/// FMA; kAvx512 includes F, DQ, BW, VL and CD, which OpenBLAS's SkylakeX kernels are compiled for.
std::optional<VectorLevel> cpu_vector_level();

/// Returns the generation that a core is written for, whatever the case of its letters, or nothing where the
/// name is not one of x86-64.
std::optional<VectorLevel> core_vector_level(std::string_view core);

/// Returns whether the core is known to use less than `level`.
bool is_narrower(std::string_view core, VectorLevel level);

/// Returns one line that says which products run on kernels narrower than the CPU, and what to do; it is
/// empty where the core is not known to be narrower. `products` are those that OpenBLAS computes, e.g.
/// "float64".
std::string narrow_core_warning(std::string_view core, std::optional<VectorLevel> cpu, std::string_view products);

}  // namespace logitless::gemm
