// Copyright 2026 The logitless authors. SPDX-License-Identifier: Apache-2.0
/// @file
/// An Environment describes the library, CPU, instruction set and BLAS in use, for reports and bug reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "logitless/context.h"

namespace logitless {

/// The machine and the libraries, as a context uses them.
struct Environment {
  std::string version;                     ///< of logitless
  std::string cpu;                         ///< model name
  int cores = 0;                           ///< cores that this process may use
  int threads = 0;                         ///< of the context's team
  int64_t l1d_bytes = 0;                   ///< of one core; 0 where unknown
  int64_t l2_bytes = 0;                    ///< of one core
  int64_t l3_bytes = 0;                    ///< of the cores that share it
  std::string simd_target;                 ///< of the context
  std::vector<std::string> simd_targets;   ///< of this build on this CPU, best first
  std::string gemm_backend;                ///< of the context
  std::vector<std::string> gemm_backends;  ///< of this build on this CPU, best first
  std::string gemm_float32;                ///< library that multiplies float32, e.g. "oneDNN 2.6.3 (AVX-512)"
  std::string gemm_bf16;                   ///< library that multiplies bfloat16 natively; empty: widened to float32
  std::string blas_config;                 ///< the BLAS's own description, e.g. "OpenBLAS 0.3.21 ... MAX_THREADS=128"
  std::string blas_core;                   ///< core whose kernels the BLAS runs, e.g. "Zen"
  std::string blas_threading;              ///< "openmp", "pthreads" or "sequential"
  int blas_max_threads = 0;                ///< threads that the BLAS was compiled for, the largest possible team
  std::vector<std::string> warnings;       ///< e.g. float64 on BLAS kernels narrower than the CPU
};

/// Queries the machine, the BLAS and the context. `logitless info` prints the result.
LOGITLESS_API Environment describe_environment(const Context& context);

/// Returns the version of the library at run time, e.g. "0.3.0"; LOGITLESS_VERSION_STRING is the version of
/// the headers.
LOGITLESS_API const char* version();

}  // namespace logitless
