// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// One call at the start of a program makes the BLAS run kernels that fit the CPU.
#pragma once

#include <string>

#include "logitless/export.h"
#include "logitless/names.h"

namespace logitless {

/// What use_best_blas_kernels() did, or why it left the BLAS as it was.
enum class BlasKernelsOutcome {
  kSwitched,   ///< The BLAS now runs kernels as wide as the CPU.
  kFit,        ///< Its kernels were as wide already.
  kUserChose,  ///< OPENBLAS_CORETYPE is set, and is obeyed.
  kUnknown,    ///< Nothing is known of these kernels, or of this CPU: it is no x86-64.
  kFixed,      ///< This BLAS was built with one set of kernels and cannot change them.
  kFailed      ///< The wanted kernels are not there or gave a wrong product: the former ones are back.
};

/// The names of outcomes.
template <>
inline constexpr std::array kNamesOf<BlasKernelsOutcome> = {"switched", "fit",   "user_chose",
                                                            "unknown",  "fixed", "failed"};

/// What use_best_blas_kernels() found and left.
struct BlasKernels {
  BlasKernelsOutcome outcome = BlasKernelsOutcome::kUnknown;
  std::string before;  ///< the core whose kernels ran, as OpenBLAS names it, e.g. "Prescott"
  std::string after;   ///< the core whose kernels run now, e.g. "SkylakeX"
  std::string reason;  ///< one line: why it switched, or why it did not
};

/// Makes OpenBLAS run kernels as wide as the CPU, where it runs narrower ones. An OpenBLAS that is older than
/// the CPU may take it for a much older one: version 0.3.21 runs its SSE kernels on Emerald Rapids and what
/// came after, at a fifth of the speed. According to what the CPU has, the choice is SkylakeX (AVX-512 F, DQ,
/// BW, VL and CD), Haswell (AVX2 and FMA) or Sandybridge (AVX). Kernels that fit already stay, and so does
/// what the user chose by OPENBLAS_CORETYPE. After a switch some small products must come out exactly right,
/// or the former kernels come back.
///
/// Call it first thing in main(): before other threads start, and while no BLAS call is under way. It changes
/// a library of the whole process, and with it the last bits of every product; it also calls setenv() and
/// unsetenv(), which no other thread may do or read meanwhile. For these reasons no other function of
/// logitless calls it. A second call finds kernels that fit. The function throws nothing but std::bad_alloc.
LOGITLESS_API BlasKernels use_best_blas_kernels();

}  // namespace logitless
