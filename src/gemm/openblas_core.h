// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
// This finds which kernels OpenBLAS runs (it calls a set of them a core) and whether they fit the CPU, and
// changes them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "logitless/blas.h"

namespace logitless::gemm {

/// Generations of x86-64 vector instructions, as far as the kernels of matrix products differ by
/// them.
enum class VectorLevel { kSse, kAvx, kAvx2, kAvx512 };

/// Returns what the CPU and the operating system can run, or nothing on other architectures. kAvx2 includes
/// FMA; kAvx512 includes F, DQ, BW, VL and CD, which OpenBLAS's SkylakeX kernels are compiled for.
std::optional<VectorLevel> cpu_vector_level();

/// Returns the generation that a core is written for, whatever the case of its letters, or nothing where the
/// name is not one of x86-64.
std::optional<VectorLevel> core_vector_level(std::string_view core);

/// The process's OpenBLAS, or what a test puts in its place.
struct CoreSwitch {
  std::optional<VectorLevel> cpu;
  std::function<std::string()> core;
  /// These forget the core, and choose one again by OPENBLAS_CORETYPE. Both are empty where the library has
  /// one core only.
  std::function<void()> quit;
  std::function<void()> init;
  /// Returns whether trial products come out exactly.
  std::function<bool()> multiplies_right;
};
CoreSwitch openblas_core_switch();

/// Does what use_best_blas_kernels() does, for this BLAS.
BlasKernels use_best_kernels(const CoreSwitch& blas);

/// Returns one line about kernels that are narrower than the CPU, and what to do; it is empty where none is
/// known to be.
std::string core_warning(const CoreSwitch& blas);

}  // namespace logitless::gemm
